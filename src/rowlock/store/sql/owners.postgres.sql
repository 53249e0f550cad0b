-- Whose jobs these are: live, finished, or remembered by their ids. Uses the primary keys.
SELECT job.id::text, job.tenant
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT finished.id::text, finished.tenant
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
UNION ALL
SELECT held.holder::text, held.tenant
FROM rowlock.key_hold AS held
WHERE held.holder = ANY (:ids::uuid[])

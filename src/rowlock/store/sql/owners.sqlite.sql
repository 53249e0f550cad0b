-- Whose jobs these are: live, finished, or remembered by their ids. Uses the primary keys.
SELECT job.id, job.tenant
FROM rowlock_job AS job
WHERE job.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT finished.id, finished.tenant
FROM rowlock_finished AS finished
WHERE finished.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT held.holder, held.tenant
FROM rowlock_key_hold AS held
WHERE held.holder IN (SELECT value FROM json_each(:ids))

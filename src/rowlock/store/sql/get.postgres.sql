-- Jobs by id, live or finished. Uses job_pkey, finished_pkey.
SELECT {job}, {now}
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT {finished}, {now}
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])

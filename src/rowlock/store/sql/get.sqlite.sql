-- Jobs by id, live or finished. Uses the primary keys.
SELECT {job}, {now}
FROM rowlock_job AS job
WHERE job.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT {finished}, {now}
FROM rowlock_finished AS finished
WHERE finished.id IN (SELECT value FROM json_each(:ids))

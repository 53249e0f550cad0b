-- About how many bytes jobs have, live or finished, by id. Uses the primary keys.
SELECT job.id, length(job.payload)
FROM rowlock_job AS job
WHERE job.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT finished.id, length(finished.payload) + coalesce(length(finished.result), 0)
FROM rowlock_finished AS finished
WHERE finished.id IN (SELECT value FROM json_each(:ids))

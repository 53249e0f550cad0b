-- The logs of jobs, each line as JSON. Uses the primary key.
SELECT {object}
FROM rowlock_{table} AS moved
WHERE moved.job_id IN (SELECT value FROM json_each(:ids))

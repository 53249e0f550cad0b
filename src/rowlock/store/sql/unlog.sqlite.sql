-- Remove the logs of jobs. Uses the primary key.
DELETE FROM rowlock_log
WHERE job_id IN (SELECT value FROM json_each(:ids))

-- Which of these running jobs somebody asked to cancel. Uses the primary key.
SELECT job.id
FROM rowlock_job AS job
WHERE job.id IN (SELECT value FROM json_each(:ids)) AND job.cancel_requested

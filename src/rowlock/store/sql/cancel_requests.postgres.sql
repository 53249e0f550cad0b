-- Which of these running jobs somebody asked to cancel. Uses job_pkey.
SELECT job.id::text
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[]) AND job.cancel_requested

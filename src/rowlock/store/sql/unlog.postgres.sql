-- Remove the logs of jobs. Uses log_pkey.
DELETE FROM rowlock.log
WHERE job_id = ANY (:ids::uuid[])

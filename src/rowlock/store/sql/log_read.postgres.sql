-- The lines of a job's log. Uses log_pkey.
SELECT log.at, log.text
FROM rowlock.log AS log
WHERE log.job_id = :id::uuid
ORDER BY log.line

-- The lines of a job's log. Uses the primary key.
SELECT log.at, log.text
FROM rowlock_log AS log
WHERE log.job_id = :id
ORDER BY log.line

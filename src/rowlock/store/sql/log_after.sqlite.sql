-- The log lines of a job from a number on. Uses the primary key.
SELECT log.line, log.at, log.text
FROM rowlock_log AS log
WHERE log.job_id = :id AND log.line >= :first
ORDER BY log.line
LIMIT :limit

-- The log lines of a job from a number on. Uses log_pkey.
SELECT log.line, log.at, log.text
FROM rowlock.log AS log
WHERE log.job_id = :id::uuid AND log.line >= :first::integer
ORDER BY log.line
LIMIT :limit

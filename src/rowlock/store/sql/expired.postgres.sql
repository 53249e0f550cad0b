-- Finished jobs whose time is over, the oldest first. Uses finished_expiry.
SELECT finished.id::text, finished.log_lines
FROM rowlock.finished AS finished
WHERE finished.expires_at <= (SELECT {now})
ORDER BY finished.expires_at
LIMIT :limit
FOR UPDATE OF finished SKIP LOCKED

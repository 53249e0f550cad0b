-- Finished jobs whose time is over, the oldest first. Uses finished_expiry.
SELECT finished.id, finished.log_lines
FROM rowlock_finished AS finished
WHERE finished.expires_at <= {now}
ORDER BY finished.expires_at
LIMIT :limit

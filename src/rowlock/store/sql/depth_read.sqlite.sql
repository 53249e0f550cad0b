-- Samples of queues of a stretch of time, the newest first; those of all queues together have no
-- name. Uses the primary key.
SELECT depth.at, depth.queue, depth.ready, depth.scheduled, depth.running, depth.retrying,
    depth.oldest_us
FROM rowlock_depth AS depth
WHERE depth.at >= :since
    AND depth.at < :until
    AND (:queue IS NULL OR depth.queue IN (:queue, ''))
ORDER BY depth.at DESC
LIMIT :limit

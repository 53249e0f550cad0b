-- Samples of queues of a stretch of time, the newest first; those of all queues together have no
-- name. Uses depth_pkey.
SELECT depth.at, depth.queue, depth.ready, depth.scheduled, depth.running, depth.retrying,
    depth.oldest_us
FROM rowlock.depth AS depth
WHERE depth.at >= :since::bigint
    AND depth.at < :until::bigint
    AND (:queue::text IS NULL OR depth.queue IN (:queue::text, ''))
ORDER BY depth.at DESC
LIMIT :limit

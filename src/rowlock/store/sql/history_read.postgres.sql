-- Parts of the sums of a stretch of time, the newest first. Uses history_at.
SELECT history.at, history.queue, history.kind, history.sums
FROM rowlock.history AS history
WHERE history.at >= :since::bigint
    AND history.at < :until::bigint
    AND (:queue::text IS NULL OR history.queue = :queue::text)
    AND (:kind::text IS NULL OR history.kind = :kind::text)
ORDER BY history.at DESC
LIMIT :limit

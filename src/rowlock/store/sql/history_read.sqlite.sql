-- Parts of the sums of a stretch of time, the newest first. Uses rowlock_history_at.
SELECT history.at, history.queue, history.kind, history.sums
FROM rowlock_history AS history
WHERE history.at >= :since
    AND history.at < :until
    AND (:queue IS NULL OR history.queue = :queue)
    AND (:kind IS NULL OR history.kind = :kind)
ORDER BY history.at DESC
LIMIT :limit

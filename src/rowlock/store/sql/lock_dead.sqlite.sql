-- Dead jobs that fit, oldest failure first, after a cursor and up to a time. Uses finished_dead.
SELECT finished.id, finished.finished_at
FROM rowlock_finished AS finished
WHERE finished.state = 'dead'
    AND finished.finished_at <= :until_finished
    AND (finished.finished_at, finished.id) > (:after, :after_id)
    AND (:kind IS NULL OR finished.kind = :kind)
    AND (:queue IS NULL OR finished.queue = :queue)
    AND (:tenant IS NULL OR finished.tenant = :tenant)
    AND (:key IS NULL OR finished.key = :key)
    AND (:tag IS NULL OR :tag IN (SELECT value FROM json_each(finished.tags)))
    AND (:since IS NULL OR finished.created_at >= :since)
    AND (:until IS NULL OR finished.created_at < :until)
ORDER BY finished.finished_at, finished.id
LIMIT :limit

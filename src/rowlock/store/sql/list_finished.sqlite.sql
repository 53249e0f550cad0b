-- A page of finished jobs, newest id first, of at most so many rows read. Uses the primary key.
SELECT {finished}, {now}
FROM (
    SELECT *
    FROM rowlock_finished
    WHERE id < coalesce(:cursor, 'g')
    ORDER BY id DESC
    LIMIT :scan
) AS finished
WHERE (:state IS NULL OR finished.state = :state)
    AND (:kind IS NULL OR finished.kind = :kind)
    AND (:queue IS NULL OR finished.queue = :queue)
    AND (:tenant IS NULL OR finished.tenant = :tenant)
    AND (:key IS NULL OR finished.key = :key)
    AND (:tag IS NULL OR :tag IN (SELECT value FROM json_each(finished.tags)))
    AND (:error IS NULL OR instr(lower(finished.errors), lower(:error)) > 0)
    AND (:since IS NULL OR finished.created_at >= :since)
    AND (:until IS NULL OR finished.created_at < :until)
ORDER BY finished.id DESC
LIMIT :limit

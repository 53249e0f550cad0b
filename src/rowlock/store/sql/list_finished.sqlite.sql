-- A page of finished jobs, newest id first, of at most so many rows read. Uses the primary key.
SELECT {finished}, {now}
FROM rowlock_finished AS finished
WHERE finished.id < coalesce(:cursor, 'g')
    -- Not by a query of so many rows within this one: SQLite would read them all, to sort them.
    AND finished.id >= coalesce(
        (
            SELECT floor.id
            FROM rowlock_finished AS floor
            WHERE floor.id < coalesce(:cursor, 'g')
            ORDER BY floor.id DESC
            LIMIT 1 OFFSET :scan - 1
        ),
        ''
    )
    AND (:state IS NULL OR finished.state = :state)
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

-- A page of dead jobs, newest failure first, of at most so many rows read. Uses finished_dead.
WITH floor AS MATERIALIZED (
    SELECT finished_at, id
    FROM rowlock_finished
    WHERE state = 'dead' AND (finished_at, id) < (:cursor_finished, coalesce(:cursor, 'g'))
    ORDER BY finished_at DESC, id DESC
    LIMIT 1 OFFSET :scan - 1
)
SELECT {finished}, {now}
FROM rowlock_finished AS finished
WHERE finished.state = 'dead'
    AND (finished.finished_at, finished.id) < (:cursor_finished, coalesce(:cursor, 'g'))
    -- The first is for the index, the second for those that died at the same time.
    AND finished.finished_at >= coalesce((SELECT floor.finished_at FROM floor), 0)
    AND coalesce(
        (finished.finished_at, finished.id) >= (SELECT floor.finished_at, floor.id FROM floor), 1
    )
    AND (:kind IS NULL OR finished.kind = :kind)
    AND (:queue IS NULL OR finished.queue = :queue)
    AND (:fingerprint IS NULL OR finished.fingerprint = :fingerprint)
    AND (:tenant IS NULL OR finished.tenant = :tenant)
    AND (:key IS NULL OR finished.key = :key)
    AND (:tag IS NULL OR :tag IN (SELECT value FROM json_each(finished.tags)))
    AND (:error IS NULL OR instr(lower(finished.errors), lower(:error)) > 0)
    AND (:since IS NULL OR finished.created_at >= :since)
    AND (:until IS NULL OR finished.created_at < :until)
ORDER BY finished.finished_at DESC, finished.id DESC
LIMIT :limit

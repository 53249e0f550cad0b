-- A page of dead jobs, newest failure first, of at most so many rows read. Uses finished_dead.
SELECT {finished}, {now}
FROM (
    SELECT *
    FROM rowlock_finished
    WHERE state = 'dead'
        AND (finished_at, id) < (
            :cursor_finished,
            coalesce(:cursor, 'g')
        )
    ORDER BY finished_at DESC, id DESC
    LIMIT :scan
) AS finished
WHERE (:kind IS NULL OR finished.kind = :kind)
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

-- As dead_groups, of those jobs that fit among the newest failures. Uses rowlock_finished_dead.
SELECT newest.fingerprint, count(*), min(newest.finished_at), max(newest.finished_at),
    (
        SELECT finished.id
        FROM rowlock_finished AS finished
        WHERE finished.state = 'dead'
            AND finished.fingerprint = newest.fingerprint
            AND (:kind IS NULL OR finished.kind = :kind)
            AND (:queue IS NULL OR finished.queue = :queue)
            AND (:tenant IS NULL OR finished.tenant = :tenant)
        ORDER BY finished.finished_at DESC, finished.id DESC
        LIMIT 1
    )
FROM (
    SELECT finished.fingerprint, finished.finished_at, finished.kind, finished.queue,
        finished.tenant
    FROM rowlock_finished AS finished
    WHERE finished.state = 'dead'
    ORDER BY finished.finished_at DESC, finished.id DESC
    LIMIT :scan
) AS newest
WHERE newest.fingerprint IS NOT NULL
    AND (:kind IS NULL OR newest.kind = :kind)
    AND (:queue IS NULL OR newest.queue = :queue)
    AND (:tenant IS NULL OR newest.tenant = :tenant)
GROUP BY newest.fingerprint

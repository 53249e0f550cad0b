-- As dead_groups, of those jobs that fit among the newest failures. Uses finished_dead.
SELECT newest.fingerprint, count(*), min(newest.finished_at), max(newest.finished_at),
    (
        SELECT finished.id::text
        FROM rowlock.finished AS finished
        WHERE finished.state = 'dead'
            AND finished.fingerprint = newest.fingerprint
            AND (:kind::text IS NULL OR finished.kind = :kind::text)
            AND (:queue::text IS NULL OR finished.queue = :queue::text)
            AND (:tenant::text IS NULL OR finished.tenant = :tenant::text)
        ORDER BY finished.finished_at DESC, finished.id DESC
        LIMIT 1
    )
FROM (
    SELECT finished.fingerprint, finished.finished_at, finished.kind, finished.queue,
        finished.tenant
    FROM rowlock.finished AS finished
    WHERE finished.state = 'dead'
    ORDER BY finished.finished_at DESC, finished.id DESC
    LIMIT :scan
) AS newest
WHERE newest.fingerprint IS NOT NULL
    AND (:kind::text IS NULL OR newest.kind = :kind::text)
    AND (:queue::text IS NULL OR newest.queue = :queue::text)
    AND (:tenant::text IS NULL OR newest.tenant = :tenant::text)
GROUP BY newest.fingerprint

-- A page of dead jobs, newest failure first, of at most so many rows read. Uses finished_dead.
SELECT {finished}, {now}
FROM (
    SELECT *
    FROM rowlock.finished
    WHERE state = 'dead'
        AND (finished_at, id) < (
            :cursor_finished::bigint,
            coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        )
    ORDER BY finished_at DESC, id DESC
    LIMIT :scan
) AS finished
WHERE (:kind::text IS NULL OR finished.kind = :kind::text)
    AND (:queue::text IS NULL OR finished.queue = :queue::text)
    AND (:fingerprint::text IS NULL OR finished.fingerprint = :fingerprint::text)
    AND (:tenant::text IS NULL OR finished.tenant = :tenant::text)
    AND (:key::text IS NULL OR finished.key = :key::text)
    AND (:tag::text IS NULL OR finished.tags::jsonb ? :tag::text)
    AND (
        :error::text IS NULL
        OR position(
            lower(:error::text COLLATE "C") IN lower(finished.errors COLLATE "C")
        ) > 0
    )
    AND (:since::bigint IS NULL OR finished.created_at >= :since::bigint)
    AND (:until::bigint IS NULL OR finished.created_at < :until::bigint)
ORDER BY finished.finished_at DESC, finished.id DESC
LIMIT :limit

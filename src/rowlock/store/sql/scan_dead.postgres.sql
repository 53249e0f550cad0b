-- Ids of dead jobs that fit, among the next rows by the time of failure, and where reading ended.
-- Uses finished_dead.
WITH scanned AS MATERIALIZED (
    SELECT id, finished_at, kind, queue, tenant, key, tags, errors, created_at
    FROM rowlock.finished
    WHERE state = 'dead'
        AND (finished_at, id) > (:after::bigint, :after_id::uuid)
        AND finished_at <= :created_until::bigint
    ORDER BY finished_at, id
    LIMIT :scan
)
SELECT fitting.id::text, fitting.at,
    (SELECT count(*) FROM scanned),
    (SELECT id::text FROM scanned ORDER BY scanned.finished_at DESC, scanned.id DESC LIMIT 1),
    (SELECT finished_at FROM scanned ORDER BY scanned.finished_at DESC, scanned.id DESC LIMIT 1)
FROM (SELECT 1) AS always
    LEFT JOIN (
        SELECT scanned.id, scanned.finished_at AS at
        FROM scanned
        WHERE (:kind::text IS NULL OR scanned.kind = :kind::text)
            AND (:queue::text IS NULL OR scanned.queue = :queue::text)
            AND (:tenant::text IS NULL OR scanned.tenant = :tenant::text)
            AND (:key::text IS NULL OR scanned.key = :key::text)
            AND (:tag::text IS NULL OR scanned.tags::jsonb ? :tag::text)
            AND (
                :error::text IS NULL
                OR position(
                    lower(:error::text COLLATE "C") IN lower(scanned.errors COLLATE "C")
                ) > 0
            )
            AND (:since::bigint IS NULL OR scanned.created_at >= :since::bigint)
            AND (:until::bigint IS NULL OR scanned.created_at < :until::bigint)
            AND scanned.created_at <= :created_until::bigint
        ORDER BY scanned.finished_at, scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.at, fitting.id

-- Ids of live jobs that fit, among the next rows by id, and where reading ended.
-- Uses job_pkey.
WITH scanned AS MATERIALIZED (
    SELECT id, kind, queue, tenant, key, tags, errors, created_at, run_at, attempt, lease_expires_at
    FROM rowlock.job
    WHERE id > :after_id::uuid
    ORDER BY id
    LIMIT :scan
)
SELECT fitting.id::text, fitting.at,
    (SELECT count(*) FROM scanned),
    (SELECT id::text FROM scanned ORDER BY scanned.id DESC LIMIT 1),
    (SELECT created_at FROM scanned ORDER BY scanned.id DESC LIMIT 1)
FROM (SELECT 1) AS always
    LEFT JOIN (
        SELECT scanned.id, scanned.created_at AS at
        FROM scanned
        WHERE (
                :state::text IS NULL
                OR (:state::text = 'running') = (scanned.lease_expires_at IS NOT NULL)
                AND (
                    scanned.lease_expires_at IS NOT NULL
                    OR :state::text = CASE
                        WHEN scanned.run_at <= {now} THEN 'ready'
                        WHEN scanned.attempt = 0 THEN 'scheduled'
                        ELSE 'retrying'
                    END
                )
            )
            AND (:kind::text IS NULL OR scanned.kind = :kind::text)
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
        ORDER BY scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.id

-- Ids of finished jobs that fit, among the next rows by id, and where reading ended.
-- Uses the primary key.
WITH scanned AS MATERIALIZED (
    SELECT id, state, kind, queue, tenant, key, tags, errors, created_at
    FROM rowlock_finished
    WHERE id > :after_id
    ORDER BY id
    LIMIT :scan
)
SELECT fitting.id, fitting.at,
    (SELECT count(*) FROM scanned),
    (SELECT id FROM scanned ORDER BY id DESC LIMIT 1),
    (SELECT created_at FROM scanned ORDER BY id DESC LIMIT 1)
FROM (SELECT 1) AS always
    LEFT JOIN (
        SELECT scanned.id, scanned.created_at AS at
        FROM scanned
        WHERE (:state IS NULL OR scanned.state = :state)
            AND (:kind IS NULL OR scanned.kind = :kind)
            AND (:queue IS NULL OR scanned.queue = :queue)
            AND (:tenant IS NULL OR scanned.tenant = :tenant)
            AND (:key IS NULL OR scanned.key = :key)
            AND (:tag IS NULL OR :tag IN (SELECT value FROM json_each(scanned.tags)))
            AND (:error IS NULL OR instr(lower(scanned.errors), lower(:error)) > 0)
            AND (:since IS NULL OR scanned.created_at >= :since)
            AND (:until IS NULL OR scanned.created_at < :until)
            AND scanned.created_at <= :created_until
        ORDER BY scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.id

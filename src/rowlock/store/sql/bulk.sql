-- name: sizes (postgres)
-- The approximate size of jobs in bytes, live or finished, by id. Uses job_pkey, finished_pkey.
SELECT job.id::text, octet_length(job.payload)
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT finished.id::text,
    octet_length(finished.payload) + coalesce(octet_length(finished.result), 0)
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])

-- name: sizes (sqlite)
-- The approximate size of jobs in bytes, live or finished, by id. Uses the primary keys.
SELECT job.id, length(job.payload)
FROM rowlock_job AS job
WHERE job.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT finished.id, length(finished.payload) + coalesce(length(finished.result), 0)
FROM rowlock_finished AS finished
WHERE finished.id IN (SELECT value FROM json_each(:ids))

-- name: scan_live (postgres)
-- Ids of live jobs that match, among the next rows by id, and where reading ended.
-- Uses job_pkey.
WITH scanned AS MATERIALIZED (
    SELECT id, kind, queue, tenant, key, tags, errors, created_at, run_at, attempt,
        lease_expires_at, held_by
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
        FROM scanned, (SELECT {now} AS now) AS clock
        WHERE {in_state scanned}
            AND {fits scanned}
            AND scanned.created_at <= :created_until::bigint
        ORDER BY scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.id

-- name: scan_live (sqlite)
-- Ids of live jobs that match, among the next rows by id, and where reading ended.
-- Uses the primary key.
WITH scanned AS MATERIALIZED (
    SELECT id, kind, queue, tenant, key, tags, errors, created_at, run_at, attempt,
        lease_expires_at, held_by
    FROM rowlock_job
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
        WHERE {in_state scanned}
            AND {fits scanned}
            AND scanned.created_at <= :created_until
        ORDER BY scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.id

-- name: scan_finished (postgres)
-- Ids of finished jobs that match, among the next rows by id, and where reading ended.
-- Uses finished_pkey.
WITH scanned AS MATERIALIZED (
    SELECT id, state, kind, queue, tenant, key, tags, errors, created_at
    FROM rowlock.finished
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
        WHERE (:state::text IS NULL OR scanned.state = :state::text)
            AND {fits scanned}
            AND scanned.created_at <= :created_until::bigint
        ORDER BY scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.id

-- name: scan_finished (sqlite)
-- Ids of finished jobs that match, among the next rows by id, and where reading ended.
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
            AND {fits scanned}
            AND scanned.created_at <= :created_until
        ORDER BY scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.id

-- name: scan_dead (postgres)
-- Ids of dead jobs that match, among the next rows by time of failure, and where reading ended.
-- Uses finished_dead; for the jobs of one fingerprint, finished_fingerprint.
WITH scanned AS MATERIALIZED (
    SELECT id, finished_at, kind, queue, tenant, key, tags, errors, created_at
    FROM rowlock.finished
    WHERE state = 'dead'
        {group? AND fingerprint = :fingerprint::text}
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
        WHERE {fits scanned}
            AND scanned.created_at <= :created_until::bigint
        ORDER BY scanned.finished_at, scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.at, fitting.id

-- name: scan_dead (sqlite)
-- Ids of dead jobs that match, among the next rows by time of failure, and where reading ended.
-- Uses finished_dead; for the jobs of one fingerprint, finished_fingerprint.
WITH scanned AS MATERIALIZED (
    SELECT id, finished_at, kind, queue, tenant, key, tags, errors, created_at
    FROM rowlock_finished
    WHERE state = 'dead'
        {group? AND fingerprint = :fingerprint}
        AND (finished_at, id) > (:after, :after_id)
        AND finished_at <= :created_until
    ORDER BY finished_at, id
    LIMIT :scan
)
SELECT fitting.id, fitting.at,
    (SELECT count(*) FROM scanned),
    (SELECT id FROM scanned ORDER BY finished_at DESC, id DESC LIMIT 1),
    (SELECT finished_at FROM scanned ORDER BY finished_at DESC, id DESC LIMIT 1)
FROM (SELECT 1) AS always
    LEFT JOIN (
        SELECT scanned.id, scanned.finished_at AS at
        FROM scanned
        WHERE {fits scanned}
            AND scanned.created_at <= :created_until
        ORDER BY scanned.finished_at, scanned.id
        LIMIT :limit
    ) AS fitting ON true
ORDER BY fitting.at, fitting.id

-- name: bulk_add
-- Store a bulk operation. Uses bulk_pkey.
INSERT INTO rowlock.bulk (
    id, created_at, updated_at, total, is_exact, actor, tenant, action, chosen, place, skipped_ids
)
SELECT :id::uuid, clock.now, clock.now, :total::bigint, :is_exact::boolean, :actor, :tenant,
    :action, :chosen, :place, '[]'
FROM (SELECT {now} AS now) AS clock

-- name: bulk_get
-- A bulk operation and its progress. Uses bulk_pkey.
SELECT bulk.id::text, bulk.created_at, bulk.updated_at, bulk.finished_at, bulk.action, bulk.chosen,
    bulk.actor, bulk.tenant, bulk.total, bulk.is_exact, bulk.done, bulk.skipped, bulk.skipped_ids,
    bulk.problem
FROM rowlock.bulk AS bulk
WHERE bulk.id = :id::uuid

-- name: bulk_running
-- The ids of bulk operations that have not ended, oldest first. Uses bulk_running.
SELECT bulk.id::text
FROM rowlock.bulk AS bulk
WHERE bulk.finished_at IS NULL
ORDER BY bulk.id
LIMIT :limit

-- name: bulk_lock
-- Lock a bulk operation that has not ended, and its place; nothing if another process holds it.
-- Uses bulk_pkey.
SELECT bulk.id::text, bulk.created_at, bulk.updated_at, bulk.finished_at, bulk.action, bulk.chosen,
    bulk.actor, bulk.tenant, bulk.total, bulk.is_exact, bulk.done, bulk.skipped, bulk.skipped_ids,
    bulk.problem, bulk.place
FROM rowlock.bulk AS bulk
WHERE bulk.id = :id::uuid AND bulk.finished_at IS NULL
FOR UPDATE OF bulk SKIP LOCKED

-- name: bulk_move (postgres)
-- Record a step of a bulk operation that this transaction holds. Uses bulk_pkey.
UPDATE rowlock.bulk
SET updated_at = clock.now,
    finished_at = CASE WHEN :is_over::boolean THEN clock.now END,
    done = done + :done::bigint,
    skipped = skipped + :skipped::bigint,
    skipped_ids = :skipped_ids,
    place = :place
FROM (SELECT {now} AS now) AS clock
WHERE id = :id::uuid

-- name: bulk_move (sqlite)
-- Record a step of a bulk operation that this transaction holds. Uses the primary key.
UPDATE rowlock_bulk
SET updated_at = {now},
    finished_at = CASE WHEN :is_over THEN {now} END,
    done = done + :done,
    skipped = skipped + :skipped,
    skipped_ids = :skipped_ids,
    place = :place
WHERE id = :id

-- name: bulk_fail (postgres)
-- End a bulk operation where it stands, and store why. Uses bulk_pkey.
UPDATE rowlock.bulk
SET finished_at = clock.now,
    problem = :problem
FROM (SELECT {now} AS now) AS clock
WHERE id = :id::uuid AND finished_at IS NULL

-- name: bulk_fail (sqlite)
-- End a bulk operation where it stands, and store why. Uses the primary key.
UPDATE rowlock_bulk
SET finished_at = {now},
    problem = :problem
WHERE id = :id AND finished_at IS NULL

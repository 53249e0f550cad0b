-- name: set_pause
-- Pause or resume a queue.
INSERT INTO rowlock.queue (name, is_paused)
VALUES (:queue, :is_paused)
ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused

-- name: set_order
-- Order a queue's retries by their age, or by the time they are due.
INSERT INTO rowlock.queue (name, by_age)
VALUES (:queue, :by_age)
ON CONFLICT (name) DO UPDATE SET by_age = excluded.by_age

-- name: delete_live
-- Remove jobs that are not running. Uses job_pkey.
DELETE FROM rowlock.job
WHERE id = ANY (:ids::uuid[]) AND lease_expires_at IS NULL
RETURNING id::text

-- name: request_cancel (postgres)
-- Ask the workers of running jobs to end them. Uses job_pkey.
UPDATE rowlock.job
SET cancel_requested = true
WHERE id = ANY (:ids::uuid[]) AND lease_expires_at IS NOT NULL
RETURNING id::text

-- name: request_cancel (sqlite)
-- Ask the workers of running jobs to end them. Uses the primary key.
UPDATE rowlock_job
SET cancel_requested = 1
WHERE id IN (SELECT value FROM json_each(:ids)) AND lease_expires_at IS NOT NULL
RETURNING id

-- name: set_run_at
-- Change when jobs that are not running are due. NULL and the past mean now. Uses job_pkey.
UPDATE rowlock.job
SET run_at = CASE WHEN :run_at::bigint > {now} THEN :run_at::bigint ELSE {now} END,
    held_by = CASE WHEN limit_name IS NULL THEN NULL WHEN :run_at::bigint > {now} THEN 2 ELSE 1 END
WHERE id = ANY (:ids::uuid[]) AND lease_expires_at IS NULL AND coalesce(held_by, 0) <> 3
RETURNING id::text, queue

-- name: set_queue
-- Move jobs that are not running to another queue. Uses job_pkey.
UPDATE rowlock.job
SET queue = :queue
WHERE id = ANY (:ids::uuid[]) AND lease_expires_at IS NULL
RETURNING id::text, queue

-- name: lock_finished
-- Lock finished jobs by id, in one order. Uses finished_pkey.
SELECT {ended}, {now}
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
ORDER BY finished.id
FOR UPDATE OF finished

-- name: revive (postgres)
-- Put finished jobs back into the queue, like new ones, except those whose key is in flight.
-- Uses finished_pkey, job_pkey, job_key.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job ({kept}, held_by, run_at, payload)
SELECT {kept_of}, CASE WHEN finished.limit_name IS NOT NULL THEN 1 END, clock.now,
    coalesce(back.payload, finished.payload)
FROM clock, unnest(:id::uuid[], :payload::text[]) AS back (id, payload)
    JOIN rowlock.finished AS finished ON finished.id = back.id
ON CONFLICT DO NOTHING
RETURNING id::text, queue

-- name: revive (sqlite)
-- Put a finished job back into the queue, like a new one, unless its key is in flight.
-- Uses the primary keys, job_key.
INSERT INTO rowlock_job ({kept}, held_by, run_at, payload)
SELECT {kept_of}, CASE WHEN finished.limit_name IS NOT NULL THEN 1 END, {now},
    coalesce(:payload, finished.payload)
FROM rowlock_finished AS finished
WHERE finished.id = :id
ON CONFLICT DO NOTHING
RETURNING id, queue

-- name: run_again (postgres)
-- Enqueue finished jobs again, as new jobs, except those whose key is in flight. Keys that ended
-- jobs hold don't matter. `meta` names the first job of all. Uses finished_pkey, job_pkey, job_key.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job (
    id, {again}, limit_name, limit_key, held_by, place, payload, meta, run_at, created_at
)
SELECT again.new_id, {again_of}, finished.limit_name, finished.limit_key,
    CASE WHEN finished.limit_name IS NOT NULL THEN 1 END,
    CASE WHEN finished.place IS NOT NULL THEN nextval('rowlock.turn_number') END,
    coalesce(again.payload, finished.payload),
    CASE
        WHEN finished.meta IS NULL THEN '{"run_again_of":"' || finished.id::text || '"}'
        WHEN strpos(finished.meta, '"run_again_of":') > 0 THEN finished.meta
        ELSE '{"run_again_of":"' || finished.id::text || '",' || substr(finished.meta, 2)
    END,
    clock.now, clock.now
FROM clock, unnest(:id::uuid[], :new_id::uuid[], :payload::text[]) AS again (id, new_id, payload)
    JOIN rowlock.finished AS finished ON finished.id = again.id
WHERE finished.id = ANY (:id::uuid[])
ON CONFLICT DO NOTHING
RETURNING id::text, queue

-- name: run_again (sqlite)
-- Enqueue a finished job again, as a new job, unless its key is in flight. Keys that ended jobs
-- hold don't matter. `meta` names the first job of all. Uses the primary keys, job_key.
INSERT INTO rowlock_job (
    id, {again}, limit_name, limit_key, held_by, place, payload, meta, run_at, created_at
)
SELECT :new_id, {again_of}, finished.limit_name, finished.limit_key,
    CASE WHEN finished.limit_name IS NOT NULL THEN 1 END,
    CASE WHEN finished.place IS NOT NULL THEN max({now}, 1 + coalesce((
        SELECT max(job.place)
        FROM rowlock_job AS job
        WHERE job.limit_name = finished.limit_name AND job.limit_key = finished.limit_key
            AND job.place IS NOT NULL
    ), 0)) END,
    coalesce(:payload, finished.payload),
    CASE
        WHEN finished.meta IS NULL THEN '{"run_again_of":"' || finished.id || '"}'
        WHEN instr(finished.meta, '"run_again_of":') > 0 THEN finished.meta
        ELSE '{"run_again_of":"' || finished.id || '",' || substr(finished.meta, 2)
    END,
    {now}, {now}
FROM rowlock_finished AS finished
WHERE finished.id = :id
ON CONFLICT DO NOTHING
RETURNING id, queue

-- name: forget (postgres)
-- Remove finished jobs, and the holds of their keys. Uses finished_pkey, key_hold_pkey.
WITH free AS (
    DELETE FROM rowlock.key_hold
    WHERE holder = ANY (:ids::uuid[])
)
DELETE FROM rowlock.finished
WHERE id = ANY (:ids::uuid[])
RETURNING id::text

-- name: forget (sqlite)
-- Remove finished jobs, and the holds of their keys. Uses the primary keys.
DELETE FROM rowlock_key_hold
WHERE holder IN (SELECT value FROM json_each(:ids));

DELETE FROM rowlock_finished
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id

-- name: unlog
-- Remove the logs of jobs. Uses log_pkey.
DELETE FROM rowlock.log
WHERE job_id = ANY (:ids::uuid[])

-- name: expired
-- Finished jobs whose retention is over, oldest first. Uses finished_expiry. Of a workflow that is
-- open, or that moves to another database (year 9987), only the dead: others may need the results.
SELECT finished.id::text, finished.log_lines, finished.workflow IS NOT NULL,
    finished.state <> 'succeeded'
FROM rowlock.finished AS finished
WHERE finished.expires_at <= (SELECT {now})
    AND (
        finished.workflow IS NULL
        OR finished.state = 'dead'
        OR NOT EXISTS (
            SELECT 1
            FROM rowlock.workflow AS workflow
            WHERE workflow.id = finished.workflow
                AND coalesce(workflow.ended_at, 253000000000000000) = 253000000000000000
        )
    )
ORDER BY finished.expires_at
LIMIT :limit
FOR UPDATE OF finished SKIP LOCKED

-- name: drop_finished
-- Remove finished jobs. Keys that outlive their row stay held. Uses finished_pkey.
DELETE FROM rowlock.finished
WHERE id = ANY (:ids::uuid[])
RETURNING id::text

-- name: drop_holds
-- Remove ids and keys that need no longer be remembered. Uses key_hold_expiry.
DELETE FROM rowlock.key_hold
WHERE holder IN (
    SELECT held.holder
    FROM rowlock.key_hold AS held
    WHERE held.until <= (SELECT {now})
    ORDER BY held.until
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING holder::text

-- name: drop_bulk
-- Remove records of bulk operations that ended long ago. A small table, read as a whole.
DELETE FROM rowlock.bulk
WHERE id IN (
    SELECT id
    FROM rowlock.bulk
    WHERE finished_at < (SELECT {now}) - :bulk_kept::bigint
    ORDER BY id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING id::text

-- name: drop_audit
-- Remove audit entries whose retention is over. Uses audit_expiry.
DELETE FROM rowlock.audit
WHERE id IN (
    SELECT id
    FROM rowlock.audit
    WHERE at < (SELECT {now}) - :audit_kept::bigint
    ORDER BY at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING id::text

-- name: drop_sessions
-- Remove sessions that have expired. Uses session_expiry.
DELETE FROM rowlock.session
WHERE digest IN (
    SELECT digest
    FROM rowlock.session
    WHERE expires_at <= (SELECT {now})
    ORDER BY expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING token_id

-- name: drop_logins
-- Remove tokens of login links that have expired. Uses token_login.
DELETE FROM rowlock.token
WHERE id IN (
    SELECT id
    FROM rowlock.token
    WHERE digest IS NULL AND expires_at <= (SELECT {now})
    ORDER BY expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING id

-- name: move_counts
-- How many jobs are live, and how many have ended. Reads them all.
SELECT (SELECT count(*) FROM rowlock.job), (SELECT count(*) FROM rowlock.finished)

-- name: move_take (postgres)
-- Hold waiting jobs for a move, against all workers, until it is known where they are: the lease
-- does not expire. Skips locked rows, and jobs that run in order. Uses job_pkey.
WITH picked AS MATERIALIZED (
    SELECT job.ctid
    FROM rowlock.{table} AS job
    WHERE job.id > :after::uuid AND job.lease_expires_at IS NULL AND job.place IS NULL
    ORDER BY job.id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE rowlock.{table} AS moved
SET token = moved.token + 1,
    worker = :worker,
    lease_expires_at = :for_ever::bigint,
    indexed_lease = :for_ever::bigint,
    beat_at = :for_ever::bigint
WHERE moved.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked))
RETURNING to_json(moved)::text

-- name: move_take (sqlite)
-- Hold waiting jobs for a move, against all workers, until it is known where they are: the lease
-- does not expire. Skips jobs that run in order. Uses the primary key.
UPDATE rowlock_{table}
SET token = token + 1,
    worker = :worker,
    lease_expires_at = :for_ever,
    beat_at = :for_ever
WHERE id IN (
    SELECT job.id
    FROM rowlock_{table} AS job
    WHERE job.id > :after AND job.lease_expires_at IS NULL AND job.place IS NULL
    ORDER BY job.id
    LIMIT :limit
)
RETURNING {own_object}

-- name: move_order
-- Lock waiting jobs that run in order, in that order, from a place on. Uses job_order.
SELECT job.id::text, job.limit_name, job.limit_key, job.place
FROM rowlock.job AS job
WHERE job.place IS NOT NULL AND job.lease_expires_at IS NULL
    AND (job.limit_name, job.limit_key, job.place, job.id)
        > (:limit_name::text, :limit_key::text, :place::bigint, :id::uuid)
ORDER BY job.limit_name, job.limit_key, job.place, job.id
LIMIT :limit
FOR UPDATE

-- name: move_take_order (postgres)
-- As move_take, for jobs that run in order and that are locked: those before which no other job of
-- their key is left, except those that go with them or before them. Uses job_pkey, job_order.
UPDATE rowlock.{table} AS moved
SET token = moved.token + 1,
    worker = :worker,
    lease_expires_at = :for_ever::bigint,
    indexed_lease = :for_ever::bigint,
    beat_at = :for_ever::bigint
WHERE moved.id = ANY (:ids::uuid[])
    AND NOT EXISTS (
        SELECT
        FROM rowlock.job AS first
        WHERE first.limit_name = moved.limit_name AND first.limit_key = moved.limit_key
            AND first.place IS NOT NULL
            AND (first.place, first.id) < (moved.place, moved.id)
            AND first.lease_expires_at IS DISTINCT FROM :for_ever::bigint
            AND first.id <> ALL (:ids::uuid[])
    )
RETURNING to_json(moved)::text

-- name: move_take_order (sqlite)
-- As move_take, for jobs that run in order and that are locked: those before which no other job of
-- their key is left, except those that go with them or before them. Uses job_order.
UPDATE rowlock_{table}
SET token = token + 1,
    worker = :worker,
    lease_expires_at = :for_ever,
    beat_at = :for_ever
WHERE id IN (
    SELECT job.id
    FROM rowlock_{table} AS job
    WHERE job.id IN (SELECT value FROM json_each(:ids))
        AND NOT EXISTS (
            SELECT 1
            FROM rowlock_job AS first
            WHERE first.limit_name = job.limit_name AND first.limit_key = job.limit_key
                AND first.place IS NOT NULL
                AND (first.place, first.id) < (job.place, job.id)
                AND first.lease_expires_at IS NOT :for_ever
                AND first.id NOT IN (SELECT value FROM json_each(:ids))
        )
)
RETURNING {own_object}

-- name: move_batch (postgres)
-- The jobs of one batch, as JSON. Uses job_lease.
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.indexed_lease = :for_ever::bigint AND moved.worker = :worker

-- name: move_batch (sqlite)
-- The jobs of one batch, as JSON. Uses job_lease.
SELECT {object}
FROM rowlock_{table} AS moved
WHERE moved.lease_expires_at = :for_ever AND moved.worker = :worker

-- name: move_batches (postgres)
-- The batches of moves that were not completed. Uses job_lease.
SELECT DISTINCT job.worker
FROM rowlock.job AS job
WHERE job.indexed_lease = :for_ever::bigint
ORDER BY 1

-- name: move_batches (sqlite)
-- The batches of moves that were not completed. Uses job_lease.
SELECT DISTINCT job.worker
FROM rowlock_job AS job
WHERE job.lease_expires_at = :for_ever
ORDER BY 1

-- name: move_log (postgres)
-- The logs of jobs, each line as JSON. Uses log_pkey.
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.job_id = ANY (:ids::uuid[])

-- name: move_log (sqlite)
-- The logs of jobs, each line as JSON. Uses the primary key.
SELECT {object}
FROM rowlock_{table} AS moved
WHERE moved.job_id IN (SELECT value FROM json_each(:ids))

-- name: move_mark (postgres)
-- Record that a batch is here, once and for all; returns nothing if it was recorded before.
-- Uses audit_pkey.
INSERT INTO rowlock.audit (id, at, actor, action, target, detail)
SELECT :id::uuid, clock.now, :actor, :action, :target, :detail
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO NOTHING
RETURNING id::text

-- name: move_mark (sqlite)
-- Record that a batch is here, once and for all; returns nothing if it was recorded before.
-- Uses the primary key.
INSERT INTO rowlock_audit (id, at, actor, action, target, detail)
VALUES (:id, {now}, :actor, :action, :target, :detail)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: move_marked
-- What was recorded about a batch: that it is here, or that it never will be. Uses audit_pkey.
SELECT audit.action
FROM rowlock.audit AS audit
WHERE audit.id = :id::uuid

-- name: move_remember (postgres)
-- Remember for a while the ids of new jobs that are about to move to the other database, so that a
-- repeated enqueue finds them. Uses job_lease.
INSERT INTO rowlock.key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT job.id, clock.now + :remember::bigint, job.token, job.lease_taken, 'ready', job.kind,
    job.queue, job.tenant, job.key
FROM rowlock.job AS job CROSS JOIN (SELECT {now} AS now) AS clock
WHERE job.indexed_lease = :for_ever::bigint AND job.worker = :worker
    AND job.created_at > clock.now - :remember::bigint
ON CONFLICT (holder) DO NOTHING

-- name: move_remember (sqlite)
-- Remember for a while the ids of new jobs that are about to move to the other database, so that a
-- repeated enqueue finds them. Uses job_lease.
INSERT INTO rowlock_key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT job.id, {now} + :remember, job.token, job.lease_taken, 'ready', job.kind, job.queue,
    job.tenant, job.key
FROM rowlock_job AS job
WHERE job.lease_expires_at = :for_ever AND job.worker = :worker
    AND job.created_at > {now} - :remember
ON CONFLICT (holder) DO NOTHING

-- name: move_gone (postgres)
-- Remove the jobs of a batch that is in the other database. A job that was asked to cancel is
-- removed only if the other database knows of that. Uses job_lease.
DELETE FROM rowlock.job AS job
WHERE job.indexed_lease = :for_ever::bigint AND job.worker = :worker
    AND (NOT job.cancel_requested OR job.id = ANY (:cancelled::uuid[]))
RETURNING job.id::text

-- name: move_gone (sqlite)
-- Remove the jobs of a batch that is in the other database. A job that was asked to cancel is
-- removed only if the other database knows of that. Uses job_lease.
DELETE FROM rowlock_job
WHERE lease_expires_at = :for_ever AND worker = :worker
    AND (NOT cancel_requested OR id IN (SELECT value FROM json_each(:cancelled)))
RETURNING id

-- name: move_release (postgres)
-- Let the jobs of a batch wait here again: it will never be in the other database. Uses job_lease.
UPDATE rowlock.job AS job
SET worker = NULL, lease_expires_at = NULL, indexed_lease = NULL, beat_at = NULL
WHERE job.indexed_lease = :for_ever::bigint AND job.worker = :worker
RETURNING job.id::text, job.queue, job.cancel_requested, job.workflow::text

-- name: move_release (sqlite)
-- Let the jobs of a batch wait here again: it will never be in the other database. Uses job_lease.
UPDATE rowlock_job
SET worker = NULL, lease_expires_at = NULL, beat_at = NULL
WHERE lease_expires_at = :for_ever AND worker = :worker
RETURNING id, queue, cancel_requested, workflow

-- name: move_freeze
-- Postpone all schedules beyond any time, so that none fires while it is in two places.
UPDATE rowlock.schedule
SET next_at = next_at + :beyond::bigint
WHERE next_at < :beyond::bigint
RETURNING name

-- name: move_arrived
-- Remove postponed schedules that are in the other database. Uses schedule_pkey.
DELETE FROM rowlock.schedule
WHERE name = ANY (:names::text[]) AND next_at >= :beyond::bigint

-- name: move_thaw
-- Let postponed schedules fire here again.
UPDATE rowlock.schedule
SET next_at = next_at - :beyond::bigint
WHERE next_at >= :beyond::bigint
RETURNING name

-- name: move_rows (postgres)
-- A page of a table's rows in the order of its key, each as JSON with all its columns.
SELECT {key}::text, to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE {key} > :after::{key_type}
ORDER BY {key}
LIMIT :limit

-- name: move_rows (sqlite)
-- A page of a table's rows in the order of its key, each as JSON with all its columns.
SELECT {key}, {object}
FROM rowlock_{table} AS moved
WHERE {key} > :after
ORDER BY {key}
LIMIT :limit

-- name: move_drop (postgres)
-- Remove rows that are now in another database. Uses the primary key.
DELETE FROM rowlock.{table} AS moved
WHERE {key} = ANY (:keys::{key_type}[])

-- name: move_drop (sqlite)
-- Remove rows that are now in another database. Uses the primary key.
DELETE FROM rowlock_{table}
WHERE {own_key} IN (SELECT value FROM json_each(:keys))

-- name: move_remember_ended (postgres)
-- As move_remember, for jobs that have ended. Uses finished_pkey.
INSERT INTO rowlock.key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT finished.id, clock.now + :remember::bigint, finished.token, finished.lease_taken,
    finished.state, finished.kind, finished.queue, finished.tenant, finished.key
FROM unnest(:id::uuid[], :token::bigint[]) AS moved (id, token)
    JOIN rowlock.finished AS finished ON finished.id = moved.id AND finished.token = moved.token
    CROSS JOIN (SELECT {now} AS now) AS clock
WHERE finished.created_at > clock.now - :remember::bigint
ON CONFLICT (holder) DO NOTHING

-- name: move_remember_ended (sqlite)
-- As move_remember, for jobs that have ended. Uses the primary key.
INSERT INTO rowlock_key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT finished.id, {now} + :remember, finished.token, finished.lease_taken, finished.state,
    finished.kind, finished.queue, finished.tenant, finished.key
FROM rowlock_finished AS finished
WHERE finished.id = :id AND finished.token = :token
    AND finished.created_at > {now} - :remember
ON CONFLICT (holder) DO NOTHING

-- name: move_drop_ended (postgres)
-- Remove ended jobs that are now in another database. A job that was retried since and ended again
-- has another token. Uses finished_pkey.
DELETE FROM rowlock.finished AS finished
USING unnest(:id::uuid[], :token::bigint[]) AS moved (id, token)
WHERE finished.id = moved.id AND finished.token = moved.token
RETURNING finished.id::text

-- name: move_drop_ended (sqlite)
-- Remove ended jobs that are now in another database. A job that was retried since and ended again
-- has another token. Uses the primary key.
DELETE FROM rowlock_finished
WHERE id = :id AND token = :token
RETURNING id

-- name: move_put (postgres)
-- Insert rows that another database has given as JSON, except those that are there already.
INSERT INTO rowlock.{table} AS moved ({columns}{job? , is_retry})
SELECT {columns}{job? , attempt > 0}
FROM json_populate_recordset(NULL::rowlock.{table}, :moved::json)
ON CONFLICT DO NOTHING
RETURNING {key}::text

-- name: move_put (sqlite)
-- Insert rows that another database has given as JSON, except those that are there already.
-- (WHERE true: without it SQLite reads ON as a part of the query.)
INSERT INTO rowlock_{table} ({columns})
SELECT {fields}
FROM json_each(:moved)
WHERE true
ON CONFLICT DO NOTHING
RETURNING {own_key}

-- name: move_places (postgres)
-- Continue the places of jobs that run in order beyond one that has come from another database.
SELECT setval('rowlock.turn_number', :place::bigint)
FROM rowlock.turn_number AS last
WHERE last.last_value < :place::bigint

-- name: move_places (sqlite)
-- Nothing to do: a place is a time, and beyond all others of its key.
SELECT :place
WHERE false

-- name: move_closed
-- Close a limit that another database had closed, unless it is closed here. Uses job_limit_pkey.
UPDATE rowlock.job_limit
SET closed_until = :closed_until::bigint, closed_by = :closed_by::text
WHERE name = :name AND closed_until IS NULL

-- name: move_lock
-- Have moves into this database arrive one after the other: a job and one that waits for it must
-- not miss each other. A table of one row.
SELECT instance.id::text
FROM rowlock.instance AS instance
FOR UPDATE OF instance

-- name: move_leave
-- Jobs of these workflows are about to move: the workflows don't end here, and their results stay
-- until they have moved, too. Uses workflow_pkey.
UPDATE rowlock.workflow
SET ended_at = :for_ever::bigint
WHERE id = ANY (:ids::uuid[]) AND ended_at IS NULL

-- name: move_stay
-- Workflows go on here, unless another one holds their key. Uses workflow_pkey and workflow_key.
UPDATE rowlock.workflow AS mine
SET ended_at = NULL
WHERE id = ANY (:ids::uuid[]) AND ended_at IS NOT NULL
    AND NOT EXISTS (
        SELECT 1
        FROM rowlock.workflow AS other
        WHERE coalesce(other.tenant, '') = coalesce(mine.tenant, '')
            AND other.name = mine.name AND other.key = mine.key
            AND other.key IS NOT NULL AND other.ended_at IS NULL
    )

-- name: move_edges (postgres)
-- Who waits for whom, of the jobs of one batch, as JSON. Uses job_lease, edge_pkey and edge_child.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.indexed_lease = :for_ever::bigint AND job.worker = :worker
        AND job.workflow IS NOT NULL
)
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.child = ANY (ARRAY(SELECT held.id FROM held))
    OR moved.parent = ANY (ARRAY(SELECT held.id FROM held))

-- name: move_edges (sqlite)
-- Who waits for whom, of the jobs of one batch, as JSON. Uses job_lease, the primary key and
-- edge_child.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM rowlock_job AS job
    WHERE job.lease_expires_at = :for_ever AND job.worker = :worker AND job.workflow IS NOT NULL
)
SELECT {object}
FROM rowlock_{table} AS moved
WHERE moved.child IN (SELECT held.id FROM held) OR moved.parent IN (SELECT held.id FROM held)

-- name: move_ended_edges (postgres)
-- Who waits for ended jobs, as JSON, and for whom else, if it has moved: one of these may have
-- added jobs for which it waits, too. Uses edge_pkey, edge_child, job_pkey and finished_pkey.
WITH beyond AS MATERIALIZED (
    SELECT DISTINCT edge.child
    FROM rowlock.edge AS edge
    WHERE edge.parent = ANY (:ids::uuid[])
        AND NOT EXISTS (SELECT FROM rowlock.job AS job WHERE job.id = edge.child)
        AND NOT EXISTS (SELECT FROM rowlock.finished AS job WHERE job.id = edge.child)
)
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.parent = ANY (:ids::uuid[])
UNION ALL
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.child = ANY (ARRAY(SELECT beyond.child FROM beyond))
    AND moved.parent <> ALL (:ids::uuid[])
    AND (
        EXISTS (SELECT FROM rowlock.job AS job WHERE job.id = moved.parent)
        OR EXISTS (SELECT FROM rowlock.finished AS job WHERE job.id = moved.parent)
    )

-- name: move_ended_edges (sqlite)
-- Who waits for ended jobs, as JSON, and for whom else, if it has moved: one of these may have
-- added jobs for which it waits, too. Uses the primary keys and edge_child.
WITH ended AS MATERIALIZED (
    SELECT value AS id FROM json_each(:ids)
),
beyond AS MATERIALIZED (
    SELECT DISTINCT edge.child
    FROM ended CROSS JOIN rowlock_edge AS edge ON edge.parent = ended.id
    WHERE NOT EXISTS (SELECT 1 FROM rowlock_job AS job WHERE job.id = edge.child)
        AND NOT EXISTS (SELECT 1 FROM rowlock_finished AS job WHERE job.id = edge.child)
)
SELECT {object}
FROM ended CROSS JOIN rowlock_{table} AS moved ON moved.parent = ended.id
UNION ALL
SELECT {object}
FROM beyond CROSS JOIN rowlock_{table} AS moved ON moved.child = beyond.child
WHERE moved.parent NOT IN (SELECT ended.id FROM ended)
    AND (
        EXISTS (SELECT 1 FROM rowlock_job AS job WHERE job.id = moved.parent)
        OR EXISTS (SELECT 1 FROM rowlock_finished AS job WHERE job.id = moved.parent)
    )

-- name: move_stacks (postgres)
-- The shapes of workflows, as JSON. Uses stack_pkey.
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.workflow = ANY (:ids::uuid[])

-- name: move_stacks (sqlite)
-- The shapes of workflows, as JSON. Uses the primary key.
SELECT {object}
FROM rowlock_{table} AS moved
WHERE moved.workflow IN (SELECT value FROM json_each(:ids))

-- name: move_lost
-- Jobs that are nowhere, and that others wait for. Reads all that wait: job_waiting, edge_child.
SELECT DISTINCT edge.parent::text
FROM rowlock.job AS job JOIN rowlock.edge AS edge ON edge.child = job.id
WHERE job.held_by = 3 AND NOT edge.is_met
    AND NOT EXISTS (SELECT 1 FROM rowlock.job AS other WHERE other.id = edge.parent)
    AND NOT EXISTS (SELECT 1 FROM rowlock.finished AS other WHERE other.id = edge.parent)
LIMIT :limit::bigint

-- name: move_left
-- Workflows that have moved as a whole. Uses workflow_ended.
SELECT workflow.id::text
FROM rowlock.workflow AS workflow
WHERE workflow.ended_at = :for_ever::bigint
    AND NOT EXISTS (SELECT 1 FROM rowlock.job AS job WHERE job.workflow = workflow.id)
    AND NOT EXISTS (SELECT 1 FROM rowlock.finished AS job WHERE job.workflow = workflow.id)
LIMIT :limit::bigint
FOR UPDATE OF workflow SKIP LOCKED

-- name: move_drop_edges
-- Remove what is known of who waited for whom, of jobs that have moved. Reads all edges.
DELETE FROM rowlock.edge AS edge
WHERE NOT EXISTS (SELECT 1 FROM rowlock.job AS job WHERE job.id = edge.child)
    AND NOT EXISTS (SELECT 1 FROM rowlock.job AS job WHERE job.id = edge.parent)
    AND NOT EXISTS (SELECT 1 FROM rowlock.finished AS job WHERE job.id = edge.child)
    AND NOT EXISTS (SELECT 1 FROM rowlock.finished AS job WHERE job.id = edge.parent)

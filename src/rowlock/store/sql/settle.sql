-- name: leased
-- How many jobs of each queue each worker holds. Walks job_lease and the claims: the running.
SELECT held.worker, held.queue, count(*)
FROM (
    SELECT job.worker, job.queue
    FROM ({running job}) AS job
    LIMIT :limit
) AS held
GROUP BY held.worker, held.queue

-- name: lock_leases
-- Lock live jobs by id until the transaction ends, in one order. Uses job_pkey.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
ORDER BY job.id
FOR UPDATE OF job

-- fragment: ended_and (postgres)
-- The jobs that end, removed from the live table, with the new values of their columns.
{of} AS (
    DELETE FROM rowlock.job AS job
    USING unnest(
        :id::uuid[], :token::bigint[], :leased::boolean[], :taken::boolean[], :state::text[],
        :result::text[], :errors::text[], :crashes::integer[], :keep::bigint[],
        :fingerprint::text[]
    ) AS ending (id, token, leased, taken, state, result, errors, crashes, keep, fingerprint)
    WHERE job.id = ending.id
        AND job.id = ANY(:id::uuid[])
        AND job.token = ending.token
        AND (job.lease_expires_at IS NOT NULL) = ending.leased
    RETURNING
        {settled}, ending.state, ending.result, ending.keep, ending.fingerprint
)

-- name: finish (postgres)
-- Move jobs out of the live table into a terminal state; fenced by token. Uses job_pkey.
-- NULL errors or crashes keep the stored ones; keep: -1 forever. For jobs that are kept longer than
-- ids are remembered, and whose key is held by their row alone: the common case.
-- The ids are given twice, here and wherever many jobs are changed: if the statistics say that the
-- table is empty, as they do while a queue is, the join alone was planned as a scan of the whole
-- table for each id (500 of 20,000 jobs: 15.8 s instead of 1 ms).
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
{ended_and gone},
kept AS (
    INSERT INTO rowlock.finished ({shared}, state, result, finished_at, expires_at, fingerprint)
    SELECT {shared}, state, result, clock.now,
        CASE WHEN keep >= 0 THEN clock.now + keep END, fingerprint
    FROM gone, clock
    ON CONFLICT (id) DO NOTHING
),
{over_claims over}
SELECT id::text
FROM gone

-- name: finish (sqlite)
-- Move jobs out of the live table into a terminal state; fenced by token. Uses the primary key.
-- NULL errors or crashes keep the stored ones; keep: -1 forever. For jobs that are kept longer than
-- ids are remembered, and whose key is held by their row alone: the common case.
WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint}
)
INSERT INTO rowlock_finished ({shared}, state, result, finished_at, expires_at, fingerprint)
SELECT {settled}, ending.state, ending.result, {now},
    CASE WHEN ending.keep >= 0 THEN {now} + ending.keep END, ending.fingerprint
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
ON CONFLICT (id) DO NOTHING;

WITH ending AS MATERIALIZED (
    {rows id, token, leased}
)
DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
)
RETURNING id

-- name: finish_bare (postgres)
-- As finish, for successes without a result, all under one token and kept for the same time. Uses
-- job_pkey. Without ON CONFLICT, which took 1.3 µs per row: a row that exists already fails the
-- statement, and the caller then uses finish.
-- One row with NULL if all were still held, as nearly always: the caller knows their ids.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
gone AS (
    DELETE FROM rowlock.job AS job
    WHERE job.id = ANY (:ids::uuid[])
        AND job.token = :token::bigint
        AND job.lease_expires_at IS NOT NULL
    RETURNING {shared_job}
),
kept AS (
    INSERT INTO rowlock.finished ({shared}, state, finished_at, expires_at)
    SELECT {shared}, 'succeeded', clock.now,
        CASE WHEN :keep::bigint >= 0 THEN clock.now + :keep::bigint END
    FROM gone, clock
),
{over_claims over},
missed AS MATERIALIZED (
    SELECT cardinality(:ids::uuid[]) - count(*) AS jobs
    FROM gone
)
SELECT NULL::text
FROM missed
WHERE missed.jobs = 0
UNION ALL
SELECT gone.id::text
FROM gone, missed
WHERE missed.jobs > 0

-- name: finish_bare (sqlite)
-- As finish, for successes without a result, all under one token and kept for the same time. Uses
-- the primary key.
INSERT INTO rowlock_finished ({shared}, state, finished_at, expires_at)
SELECT {shared_job}, 'succeeded', {now}, CASE WHEN :keep >= 0 THEN {now} + :keep END
FROM json_each(:ids) AS ending CROSS JOIN rowlock_job AS job ON job.id = ending.value
WHERE job.token = :token AND job.lease_expires_at IS NOT NULL
ON CONFLICT (id) DO NOTHING;

DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM json_each(:ids) AS ending CROSS JOIN rowlock_job AS job ON job.id = ending.value
    WHERE job.token = :token AND job.lease_expires_at IS NOT NULL
)
RETURNING id

-- name: finish_held (postgres)
-- As finish, for jobs whose id or key must be remembered beside or after their row. Uses job_pkey.
-- NULL errors or crashes keep the stored ones; keep: -1 forever, 0 not at all.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
{ended_and gone},
kept AS (
    INSERT INTO rowlock.finished ({shared}, state, result, finished_at, expires_at, fingerprint)
    SELECT {shared}, state, result, clock.now,
        CASE WHEN keep >= 0 THEN clock.now + keep END, fingerprint
    FROM gone, clock
    WHERE keep <> 0
    ON CONFLICT (id) DO NOTHING
),
held AS (
    INSERT INTO rowlock.key_hold (
        holder, token, lease_taken, state, kind, queue, tenant, key, key_until, until
    )
    SELECT id, token, lease_taken, state, kind, queue, tenant, key,
        CASE WHEN key_hold > 0 THEN created_at + key_hold END,
        greatest(
            CASE WHEN keep >= 0 THEN clock.now + :remember::bigint ELSE 0 END,
            CASE WHEN key_hold > 0 THEN created_at + key_hold ELSE 0 END
        )
    FROM gone, clock
    WHERE (keep >= 0 AND keep < :remember::bigint)
        OR (key_hold > 0 AND created_at + key_hold > clock.now)
    ON CONFLICT (holder) DO UPDATE
    SET token = excluded.token, lease_taken = excluded.lease_taken, state = excluded.state,
        kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
        key = excluded.key, key_until = excluded.key_until, until = excluded.until
),
unlogged AS (
    DELETE FROM rowlock.log AS log
    USING gone
    WHERE gone.keep = 0 AND gone.log_lines > 0 AND log.job_id = gone.id
),
{over_claims over}
SELECT id::text
FROM gone

-- name: finish_held (sqlite)
-- As finish, for jobs whose id or key must be remembered beside or after their row.
-- NULL errors or crashes keep the stored ones; keep: -1 forever, 0 not at all.
WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint}
)
INSERT INTO rowlock_finished ({shared}, state, result, finished_at, expires_at, fingerprint)
SELECT {settled}, ending.state, ending.result, {now},
    CASE WHEN ending.keep >= 0 THEN {now} + ending.keep END, ending.fingerprint
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE ending.keep <> 0
    AND job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
ON CONFLICT (id) DO NOTHING;

WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint}
)
INSERT INTO rowlock_key_hold (
    holder, token, lease_taken, state, kind, queue, tenant, key, key_until, until
)
SELECT job.id, job.token, ending.taken, ending.state, job.kind, job.queue, job.tenant, job.key,
    CASE WHEN job.key_hold > 0 THEN job.created_at + job.key_hold END,
    max(
        CASE WHEN ending.keep >= 0 THEN {now} + :remember ELSE 0 END,
        CASE WHEN job.key_hold > 0 THEN job.created_at + job.key_hold ELSE 0 END
    )
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
    AND (
        (ending.keep >= 0 AND ending.keep < :remember)
        OR (job.key_hold > 0 AND job.created_at + job.key_hold > {now})
    )
ON CONFLICT (holder) DO UPDATE
SET token = excluded.token, lease_taken = excluded.lease_taken, state = excluded.state,
    kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
    key = excluded.key, key_until = excluded.key_until, until = excluded.until;

WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint}
)
DELETE FROM rowlock_log
WHERE job_id IN (
    SELECT job.id
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE ending.keep = 0 AND job.log_lines > 0
        AND job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
);

WITH ending AS MATERIALIZED (
    {rows id, token, leased}
)
DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
)
RETURNING id

-- name: give_back (postgres)
-- Put running jobs back into the queue; fenced by token. Uses job_pkey.
UPDATE rowlock.job AS job
SET run_at = back.run_at,
    attempt = back.attempt,
    crashes = back.crashes,
    losses = back.losses,
    interruptions = back.interruptions,
    quarantined = back.quarantined,
    errors = coalesce(back.errors, job.errors),
    lease_taken = back.taken,
    lease_expires_at = NULL,
    indexed_lease = NULL,
    is_retry = back.attempt > 0,
    held_by = CASE
        WHEN job.limit_name IS NULL THEN NULL WHEN back.run_at > (SELECT {now}) THEN 2 ELSE 1
    END,
    beat_at = NULL,
    worker = NULL,
    begun = false
FROM unnest(
    :id::uuid[], :token::bigint[], :taken::boolean[], :run_at::bigint[], :attempt::integer[],
    :crashes::integer[], :losses::smallint[], :interruptions::smallint[], :quarantined::boolean[],
    :errors::text[]
) AS back (id, token, taken, run_at, attempt, crashes, losses, interruptions, quarantined, errors)
WHERE job.id = back.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = back.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text

-- name: give_back (sqlite)
-- Put a running job back into the queue; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET run_at = :run_at,
    attempt = :attempt,
    crashes = :crashes,
    losses = :losses,
    interruptions = :interruptions,
    quarantined = :quarantined,
    errors = coalesce(:errors, errors),
    lease_taken = :taken,
    lease_expires_at = NULL,
    held_by = CASE WHEN limit_name IS NULL THEN NULL WHEN :run_at > {now} THEN 2 ELSE 1 END,
    beat_at = NULL,
    worker = NULL,
    begun = 0
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id

-- name: find_ends (postgres)
-- How jobs that are no longer live ended: their last token, and whether it was taken away.
-- Uses finished_pkey, key_hold_pkey.
SELECT finished.id::text, finished.token, finished.lease_taken
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
UNION ALL
SELECT held.holder::text, held.token, held.lease_taken
FROM rowlock.key_hold AS held
WHERE held.holder = ANY (:ids::uuid[])
    AND held.until > {now}
    AND NOT EXISTS (SELECT FROM rowlock.finished AS finished WHERE finished.id = held.holder)

-- name: find_ends (sqlite)
-- How jobs that are no longer live ended: their last token, and whether it was taken away.
-- Uses the primary keys.
SELECT finished.id, finished.token, finished.lease_taken
FROM rowlock_finished AS finished
WHERE finished.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT held.holder, held.token, held.lease_taken
FROM rowlock_key_hold AS held
WHERE held.holder IN (SELECT value FROM json_each(:ids))
    AND held.until > {now}
    AND NOT EXISTS (SELECT 1 FROM rowlock_finished AS finished WHERE finished.id = held.holder)

-- name: owners
-- The tenants of jobs: live, finished, or remembered by their ids. Uses the primary keys.
SELECT job.id::text, job.tenant
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT finished.id::text, finished.tenant
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
UNION ALL
SELECT held.holder::text, held.tenant
FROM rowlock.key_hold AS held
WHERE held.holder = ANY (:ids::uuid[])

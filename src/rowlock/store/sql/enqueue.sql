-- fragment: key_held
-- Whether a live job holds its key. It does not if its key is free while it runs. (A lease until
-- 9999 is held for a move, and nobody runs the job.)
NOT (
    coalesce({of}.key_hold, 0) = -2
    AND coalesce({of}.lease_expires_at, 253000000000000000) < 253000000000000000
)

-- name: enqueue (postgres)
-- Insert jobs, except those whose id or key is in flight. Uses job_pkey, job_key.
-- The clock is read after the transaction has its xid: so a row never lies below the place that a
-- claimer which saw a later xid has already passed.
-- An id that the caller gave may have been another job's: its tokens start beyond any old one.
-- The variants are for jobs of which some have limits, or are in workflows.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job (
    {given}, run_at, created_at, token{limited,node? , limit_name, limit_key, held_by, place}
    {node? , workflow, stack, pending, watched, inputs}
)
SELECT {fresh},
    {node? CASE WHEN fresh.pending > 0 THEN coalesce(fresh.run_at, -fresh.delay) ELSE}
    greatest(coalesce(fresh.run_at, clock.now + fresh.delay), clock.now) {node? END}, clock.now,
    CASE WHEN :is_given::boolean THEN clock.now ELSE 0 END
    {limited,node? , fresh.limit_name, fresh.limit_key,
    CASE}
        {node? WHEN fresh.pending > 0 THEN 3}
        {limited,node? WHEN fresh.limit_name IS NULL THEN NULL
        WHEN coalesce(fresh.run_at, clock.now + fresh.delay) > clock.now THEN 2
        ELSE 1
    END,
    CASE WHEN fresh.is_ordered} {node? AND fresh.pending = 0}
    {limited,node? THEN nextval('rowlock.turn_number') END}
    {node? , fresh.workflow, fresh.stack, fresh.pending, fresh.watched, fresh.inputs}
FROM clock, unnest(
        {given_arrays}, :run_at::bigint[], :delay::bigint[]
        {limited,node? , :limit_name::text[], :limit_key::text[], :is_ordered::boolean[]}
        {node? , :workflow::uuid[], :stack::bigint[], :pending::integer[], :watched::boolean[],
        :inputs::text[]}
    ) AS fresh (
        {given}, run_at, delay{limited,node? , limit_name, limit_key, is_ordered}
        {node? , workflow, stack, pending, watched, inputs}
    )
ON CONFLICT DO NOTHING
RETURNING id::text, run_at, created_at

-- name: enqueue (sqlite)
-- Insert a job, unless its id or key is in flight. Uses the primary key, job_key.
-- An id that the caller gave may have been another job's: its tokens start beyond any old one.
-- The variants are for jobs of which some have limits, or are in workflows. Places are times,
-- unless two are the same.
INSERT INTO rowlock_job (
    {given}, run_at, created_at, token{limited,node? , limit_name, limit_key, held_by, place}
    {node? , workflow, stack, pending, watched, inputs}
)
VALUES (
    {given_values},
    {node? CASE WHEN :pending > 0 THEN coalesce(:run_at, -:delay) ELSE}
    max(coalesce(:run_at, {now} + :delay), {now}) {node? END}, {now},
    CASE WHEN :is_given THEN {now} ELSE 0 END
    {limited,node? , :limit_name, :limit_key,
    CASE}
        {node? WHEN :pending > 0 THEN 3}
        {limited,node? WHEN :limit_name IS NULL THEN NULL
        WHEN coalesce(:run_at, {now} + :delay) > {now} THEN 2
        ELSE 1
    END,
    CASE WHEN :is_ordered} {node? AND :pending = 0}
    {limited,node? THEN max({now}, 1 + coalesce((
        SELECT max(job.place)
        FROM rowlock_job AS job
        WHERE job.limit_name = :limit_name AND job.limit_key = :limit_key
            AND job.place IS NOT NULL
    ), 0)) END}
    {node? , :workflow, :stack, :pending, :watched, :inputs}
)
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at

-- name: enqueue_one (postgres)
-- As enqueue, for a single job, in two thirds of the time. Uses job_pkey, job_key.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job (
    {given}, run_at, created_at, token{limited? , limit_name, limit_key, held_by, place}
)
SELECT {given_values},
    greatest(coalesce(:run_at::bigint, clock.now + :delay::bigint), clock.now), clock.now,
    CASE WHEN :is_given::boolean THEN clock.now ELSE 0 END
    {limited? , :limit_name::text, :limit_key::text,
    CASE WHEN coalesce(:run_at::bigint, clock.now + :delay::bigint) > clock.now THEN 2 ELSE 1 END,
    CASE WHEN :is_ordered::boolean THEN nextval('rowlock.turn_number') END}
FROM clock
ON CONFLICT DO NOTHING
RETURNING id::text, run_at, created_at

-- name: find_live (postgres)
-- The live jobs that conflict with an enqueue, by id or by key. Uses job_pkey, job_key: one probe
-- per requested job, whatever the planner thinks of the table's size.
WITH asked AS MATERIALIZED (
    SELECT asked.*, {now} AS now
    FROM unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
)
SELECT asked.id::text, {job}, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT *
    FROM rowlock.job AS job
    WHERE job.id = asked.id
    OFFSET 0
) AS job
UNION ALL
SELECT asked.id::text, {job}, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT *
    FROM rowlock.job AS job
    WHERE coalesce(job.tenant, '') = coalesce(asked.tenant, '')
        AND job.kind = asked.kind
        AND job.key = asked.key
        AND job.id <> asked.id
        AND {key_held job}
    OFFSET 0
) AS job

-- name: find_live (sqlite)
-- The live jobs that conflict with an enqueue, by id or by key. Uses the key, job_key.
SELECT :id, {job}, {now}
FROM rowlock_job AS job
WHERE job.id = :id
UNION ALL
SELECT :id, {job}, {now}
FROM rowlock_job AS job
WHERE coalesce(job.tenant, '') = coalesce(:tenant, '')
    AND job.kind = :kind
    AND job.key = :key
    AND job.id <> :id
    AND {key_held job}

-- name: replace (postgres)
-- Give waiting jobs the payloads and options of enqueues that found their keys held, and lock them
-- in the order of the enqueues. A job that was claimed meanwhile is left out. Uses job_key and
-- job_pkey, as find_live does.
-- As in enqueue, the clock is read after the transaction has its xid.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
),
fresh AS MATERIALIZED (
    SELECT *
    FROM unnest(
            {given_arrays}, :run_at::bigint[], :delay::bigint[], :limit_name::text[],
            :limit_key::text[], :is_ordered::boolean[], :max_wait::bigint[]
        ) WITH ORDINALITY AS fresh (
            {given}, run_at, delay, limit_name, limit_key, is_ordered, max_wait, number
        )
),
picked AS MATERIALIZED (
    SELECT held.id, held.due_at, fresh.number
    FROM fresh CROSS JOIN clock CROSS JOIN LATERAL (
        SELECT job.id, greatest(
            least(
                coalesce(fresh.run_at, clock.now + fresh.delay), job.created_at + fresh.max_wait
            ),
            clock.now
        ) AS due_at
        FROM rowlock.job AS job
        WHERE coalesce(job.tenant, '') = coalesce(fresh.tenant, '')
            AND job.kind = fresh.kind
            AND job.key = fresh.key
            AND job.lease_expires_at IS NULL
            AND job.held_by IS DISTINCT FROM 3
        OFFSET 0
        FOR UPDATE OF job
    ) AS held
)
UPDATE rowlock.job AS job
SET {replaced},
    run_at = picked.due_at,
    limit_name = fresh.limit_name,
    limit_key = fresh.limit_key,
    held_by = CASE
        WHEN fresh.limit_name IS NULL THEN NULL WHEN picked.due_at > clock.now THEN 2 ELSE 1
    END,
    place = CASE
        WHEN NOT fresh.is_ordered THEN NULL
        WHEN job.place IS NOT NULL AND job.limit_name = fresh.limit_name
            AND job.limit_key = fresh.limit_key
        THEN job.place
        ELSE nextval('rowlock.turn_number')
    END
FROM clock, fresh, picked
WHERE fresh.number = picked.number
    AND job.id = picked.id
    AND job.id = ANY (ARRAY(SELECT picked.id FROM picked))
RETURNING fresh.id::text, {job}, clock.now

-- name: replace (sqlite)
-- Give a waiting job the payload and options of an enqueue that found its key held. Uses job_key.
UPDATE rowlock_job
SET {replaced},
    run_at = max(
        min(
            coalesce(:run_at, {now} + :delay),
            coalesce(created_at + :max_wait, :run_at, {now} + :delay)
        ),
        {now}
    ),
    limit_name = :limit_name,
    limit_key = :limit_key,
    held_by = CASE
        WHEN :limit_name IS NULL THEN NULL
        WHEN coalesce(:run_at, {now} + :delay) > {now}
            AND coalesce(created_at + :max_wait, :run_at, {now} + :delay) > {now}
        THEN 2
        ELSE 1
    END,
    place = CASE
        WHEN NOT :is_ordered THEN NULL
        WHEN place IS NOT NULL AND limit_name = :limit_name AND limit_key = :limit_key THEN place
        ELSE max({now}, 1 + coalesce((
            SELECT max(job.place)
            FROM rowlock_job AS job
            WHERE job.limit_name = :limit_name AND job.limit_key = :limit_key
                AND job.place IS NOT NULL
        ), 0))
    END
WHERE coalesce(tenant, '') = coalesce(:tenant, '')
    AND kind = :kind
    AND key = :key
    AND lease_expires_at IS NULL
    AND held_by IS NOT 3
RETURNING :id, {row}, {now}

-- name: find_settled (postgres)
-- Ended jobs whose id or key still answers an enqueue: (requested id, its holder).
-- A statement of its own after the insert, which may have waited for that very end.
-- Uses finished_pkey, finished_key, key_hold_pkey, key_hold_key: one probe per requested job,
-- whatever the planner thinks of the tables' sizes (that is what OFFSET 0 is for).
WITH asked AS MATERIALIZED (
    SELECT asked.*, {now} AS now
    FROM unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
)
SELECT asked.id::text, holder.id::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
        finished.state, finished.token
    FROM rowlock.finished AS finished
    WHERE finished.id = asked.id
    OFFSET 0
) AS holder
UNION ALL
SELECT asked.id::text, holder.id::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
        finished.state, finished.token
    FROM rowlock.finished AS finished
    WHERE finished.key_hold = -1
        AND coalesce(finished.tenant, '') = coalesce(asked.tenant, '')
        AND finished.kind = asked.kind
        AND finished.key = asked.key
    OFFSET 0
) AS holder
WHERE asked.key IS NOT NULL
UNION ALL
SELECT asked.id::text, holder.holder::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT held.*
    FROM rowlock.key_hold AS held
    WHERE held.holder = asked.id
    OFFSET 0
) AS holder
WHERE holder.until > asked.now
UNION ALL
SELECT asked.id::text, holder.holder::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT held.*
    FROM rowlock.key_hold AS held
    WHERE held.key_until IS NOT NULL
        AND coalesce(held.tenant, '') = coalesce(asked.tenant, '')
        AND held.kind = asked.kind
        AND held.key = asked.key
    OFFSET 0
) AS holder
WHERE asked.key IS NOT NULL AND holder.key_until > asked.now

-- name: find_settled (sqlite)
-- Ended jobs whose id or key still answers an enqueue: (requested id, its holder).
-- Uses the primary keys, finished_key, key_hold_key.
SELECT :id, finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
    finished.state, finished.token, {now}
FROM rowlock_finished AS finished
WHERE finished.id = :id
UNION ALL
SELECT :id, finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
    finished.state, finished.token, {now}
FROM rowlock_finished AS finished
WHERE finished.key_hold = -1
    AND coalesce(finished.tenant, '') = coalesce(:tenant, '')
    AND finished.kind = :kind
    AND finished.key = :key
UNION ALL
SELECT :id, held.holder, held.kind, held.queue, held.tenant, held.key, held.state, held.token,
    {now}
FROM rowlock_key_hold AS held
WHERE held.holder = :id AND held.until > {now}
UNION ALL
SELECT :id, held.holder, held.kind, held.queue, held.tenant, held.key, held.state, held.token,
    {now}
FROM rowlock_key_hold AS held
WHERE held.key_until > {now}
    AND coalesce(held.tenant, '') = coalesce(:tenant, '')
    AND held.kind = :kind
    AND held.key = :key

-- name: withdraw
-- Take back jobs inserted in this transaction, which no one else has seen. Uses job_pkey.
DELETE FROM rowlock.job
WHERE id = ANY (:ids::uuid[])

-- name: enqueue (postgres)
-- Insert jobs, except those whose id or key is in flight. Uses job_pkey, job_key.
-- The clock is read after the transaction has its xid: so a row never lies below the place that a
-- claimer which saw a later xid has already passed.
-- An id that the caller gave may have been another job's: its tokens start beyond any old one.
-- The variant is for jobs of which some have limits.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job (
    {given}, run_at, created_at, token{limited? , limit_name, limit_key, held_by, place}
)
SELECT {fresh}, greatest(coalesce(fresh.run_at, clock.now + fresh.delay), clock.now), clock.now,
    CASE WHEN :is_given::boolean THEN clock.now ELSE 0 END
    {limited? , fresh.limit_name, fresh.limit_key,
    CASE
        WHEN fresh.limit_name IS NULL THEN NULL
        WHEN coalesce(fresh.run_at, clock.now + fresh.delay) > clock.now THEN 2
        ELSE 1
    END,
    CASE WHEN fresh.is_ordered THEN nextval('rowlock.turn_number') END}
FROM clock, unnest(
        {given_arrays}, :run_at::bigint[], :delay::bigint[]
        {limited? , :limit_name::text[], :limit_key::text[], :is_ordered::boolean[]}
    ) AS fresh ({given}, run_at, delay{limited? , limit_name, limit_key, is_ordered})
ON CONFLICT DO NOTHING
RETURNING id::text, run_at, created_at

-- name: enqueue (sqlite)
-- Insert a job, unless its id or key is in flight. Uses the primary key, job_key.
-- An id that the caller gave may have been another job's: its tokens start beyond any old one.
-- The variant is for jobs of which some have limits. Places are times, unless two are the same.
INSERT INTO rowlock_job (
    {given}, run_at, created_at, token{limited? , limit_name, limit_key, held_by, place}
)
VALUES (
    {given_values}, max(coalesce(:run_at, {now} + :delay), {now}), {now},
    CASE WHEN :is_given THEN {now} ELSE 0 END
    {limited? , :limit_name, :limit_key,
    CASE
        WHEN :limit_name IS NULL THEN NULL
        WHEN coalesce(:run_at, {now} + :delay) > {now} THEN 2
        ELSE 1
    END,
    CASE WHEN :is_ordered THEN max({now}, 1 + coalesce((
        SELECT max(job.place)
        FROM rowlock_job AS job
        WHERE job.limit_name = :limit_name AND job.limit_key = :limit_key
            AND job.place IS NOT NULL
    ), 0)) END}
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
-- The live jobs that conflict with an enqueue, by id or by key. Uses job_pkey, job_key.
SELECT asked.id::text, {job}, clock.now
FROM (SELECT {now} AS now) AS clock,
    unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
    JOIN rowlock.job AS job ON job.id = asked.id
UNION ALL
SELECT asked.id::text, {job}, clock.now
FROM (SELECT {now} AS now) AS clock,
    unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
    JOIN rowlock.job AS job
        ON coalesce(job.tenant, '') = coalesce(asked.tenant, '')
        AND job.kind = asked.kind
        AND job.key = asked.key
WHERE job.id <> asked.id

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

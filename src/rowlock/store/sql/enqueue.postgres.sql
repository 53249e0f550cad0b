-- Insert jobs; those whose id or key is in flight are left out. Uses job_pkey, job_key.
-- The clock is read after the transaction has its xid: a row then never lies below what a claimer
-- that saw a later xid has passed already.
-- An id that was given may have been another job's: its tokens start where no old one can be.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job (
    id, kind, queue, rank, tenant, key, key_hold, payload, max_attempts, run_at, created_at,
    tags, meta, policy, token
)
SELECT
    fresh.id, fresh.kind, fresh.queue, fresh.rank, fresh.tenant, fresh.key, fresh.key_hold,
    fresh.payload, fresh.max_attempts,
    greatest(coalesce(fresh.run_at, clock.now + fresh.delay), clock.now), clock.now,
    fresh.tags, fresh.meta, fresh.policy,
    CASE WHEN :is_given::boolean THEN clock.now ELSE 0 END
FROM clock, unnest(
    :id::uuid[], :kind::text[], :queue::text[], :rank::smallint[], :tenant::text[], :key::text[],
    :key_hold::bigint[], :payload::text[], :max_attempts::integer[], :run_at::bigint[],
    :delay::bigint[], :tags::text[], :meta::text[], :policy::text[]
) AS fresh (
    id, kind, queue, rank, tenant, key, key_hold, payload, max_attempts, run_at, delay, tags,
    meta, policy
)
ON CONFLICT DO NOTHING
RETURNING id::text, run_at, created_at

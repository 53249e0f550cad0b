-- As enqueue, for a single job: two thirds of the time. Uses job_pkey, job_key.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job (
    id, kind, queue, rank, tenant, key, key_hold, payload, max_attempts, run_at, created_at,
    tags, meta, policy, token
)
SELECT
    :id::uuid, :kind::text, :queue::text, :rank::smallint, :tenant::text, :key::text,
    :key_hold::bigint, :payload::text, :max_attempts::integer,
    greatest(coalesce(:run_at::bigint, clock.now + :delay::bigint), clock.now), clock.now,
    :tags::text, :meta::text, :policy::text,
    CASE WHEN :is_given::boolean THEN clock.now ELSE 0 END
FROM clock
ON CONFLICT DO NOTHING
RETURNING id::text, run_at, created_at

-- Put finished jobs back into the queue, as new; those whose key is in flight are left out.
-- Uses finished_pkey, job_pkey, job_key.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
)
INSERT INTO rowlock.job (
    id, run_at, created_at, token, key_hold, max_attempts, log_lines, rank, kind, queue, tenant,
    key, payload, policy, tags, meta, errors, lease_taken
)
SELECT
    finished.id, clock.now, finished.created_at, finished.token, finished.key_hold,
    finished.max_attempts, finished.log_lines, finished.rank, finished.kind, finished.queue,
    finished.tenant, finished.key, coalesce(back.payload, finished.payload), finished.policy,
    finished.tags, finished.meta, finished.errors, finished.lease_taken
FROM clock, unnest(:id::uuid[], :payload::text[]) AS back (id, payload)
    JOIN rowlock.finished AS finished ON finished.id = back.id
ON CONFLICT DO NOTHING
RETURNING id::text, queue

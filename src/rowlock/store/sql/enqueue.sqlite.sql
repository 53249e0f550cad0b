-- Insert a job; one whose id or key is in flight is left out. Uses the primary key, job_key.
INSERT INTO rowlock_job (
    id, kind, queue, rank, tenant, key, key_hold, payload, max_attempts, run_at, created_at,
    tags, meta, policy
)
VALUES (
    :id, :kind, :queue, :rank, :tenant, :key, :key_hold, :payload, :max_attempts,
    max(coalesce(:run_at, {now} + :delay), {now}), {now},
    :tags, :meta, :policy
)
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at

-- Insert a job; one whose id or key is in flight is left out. Uses the primary key, job_key.
-- An id that was given may have been another job's: its tokens start where no old one can be.
INSERT INTO rowlock_job (
    id, kind, queue, rank, tenant, key, key_hold, payload, max_attempts, run_at, created_at,
    tags, meta, policy, token
)
VALUES (
    :id, :kind, :queue, :rank, :tenant, :key, :key_hold, :payload, :max_attempts,
    max(coalesce(:run_at, {now} + :delay), {now}), {now},
    :tags, :meta, :policy, CASE WHEN :is_given THEN {now} ELSE 0 END
)
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at

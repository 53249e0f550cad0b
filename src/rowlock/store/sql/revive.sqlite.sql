-- Put a finished job back into the queue, as new; one whose key is in flight is left out.
-- Uses the primary keys, job_key.
INSERT INTO rowlock_job (
    id, run_at, created_at, token, key_hold, max_attempts, log_lines, rank, kind, queue, tenant,
    key, payload, policy, tags, meta, errors, lease_taken
)
SELECT
    finished.id, {now}, finished.created_at, finished.token, finished.key_hold,
    finished.max_attempts, finished.log_lines, finished.rank, finished.kind, finished.queue,
    finished.tenant, finished.key, coalesce(:payload, finished.payload), finished.policy,
    finished.tags, finished.meta, finished.errors, finished.lease_taken
FROM rowlock_finished AS finished
WHERE finished.id = :id
ON CONFLICT DO NOTHING
RETURNING id, queue

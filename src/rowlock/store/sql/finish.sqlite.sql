-- Move a job out of the live table into a terminal state; fenced by token. Uses the primary key.
-- NULL errors or crashes leave what is stored; keep: -1 for ever. For jobs that are kept longer
-- than ids are remembered, and whose key is held by their row alone: the many.
INSERT INTO rowlock_finished ({shared}, state, result, finished_at, expires_at)
SELECT id, run_at, created_at, started_at, token, key_hold, attempt, max_attempts,
    coalesce(:crashes, crashes), log_lines, rank, cancel_requested, :taken, kind, queue, tenant,
    key, worker, payload, policy, tags, meta, progress, coalesce(:errors, errors), :state, :result,
    {now}, CASE WHEN :keep >= 0 THEN {now} + :keep END
FROM rowlock_job
WHERE id = :id AND token = :token AND (lease_expires_at IS NOT NULL) = :leased
ON CONFLICT (id) DO NOTHING;

DELETE FROM rowlock_job
WHERE id = :id AND token = :token AND (lease_expires_at IS NOT NULL) = :leased
RETURNING id

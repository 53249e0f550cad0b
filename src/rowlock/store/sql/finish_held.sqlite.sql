-- As finish, for a job whose id or key must be remembered beside or after its row.
-- NULL errors or crashes leave what is stored; keep: -1 for ever, 0 not at all.
INSERT INTO rowlock_finished ({shared}, state, result, finished_at, expires_at)
SELECT id, run_at, created_at, started_at, token, key_hold, attempt, max_attempts,
    coalesce(:crashes, crashes), log_lines, rank, cancel_requested, :taken, kind, queue, tenant,
    key, worker, payload, policy, tags, meta, progress, coalesce(:errors, errors), :state, :result,
    {now}, CASE WHEN :keep >= 0 THEN {now} + :keep END
FROM rowlock_job
WHERE :keep <> 0
    AND id = :id AND token = :token AND (lease_expires_at IS NOT NULL) = :leased
ON CONFLICT (id) DO NOTHING;

INSERT INTO rowlock_key_hold (
    holder, token, lease_taken, state, kind, queue, tenant, key, key_until, until
)
SELECT id, token, :taken, :state, kind, queue, tenant, key,
    CASE WHEN key_hold > 0 THEN created_at + key_hold END,
    max(
        CASE WHEN :keep >= 0 THEN {now} + :remember ELSE 0 END,
        CASE WHEN key_hold > 0 THEN created_at + key_hold ELSE 0 END
    )
FROM rowlock_job
WHERE id = :id AND token = :token AND (lease_expires_at IS NOT NULL) = :leased
    AND (
        (:keep >= 0 AND :keep < :remember)
        OR (key_hold > 0 AND created_at + key_hold > {now})
    )
ON CONFLICT (holder) DO UPDATE
SET token = excluded.token, lease_taken = excluded.lease_taken, state = excluded.state,
    kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
    key = excluded.key, key_until = excluded.key_until, until = excluded.until;

DELETE FROM rowlock_log
WHERE :keep = 0 AND job_id = (
    SELECT id
    FROM rowlock_job
    WHERE id = :id AND token = :token AND (lease_expires_at IS NOT NULL) = :leased
        AND log_lines > 0
);

DELETE FROM rowlock_job
WHERE id = :id AND token = :token AND (lease_expires_at IS NOT NULL) = :leased
RETURNING id

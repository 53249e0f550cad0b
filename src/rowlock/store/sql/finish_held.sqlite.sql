-- As finish, for jobs whose id or key must be remembered beside or after their row.
-- NULL errors or crashes leave what is stored; keep: -1 for ever, 0 not at all.
WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint}
)
INSERT INTO rowlock_finished ({shared}, state, result, finished_at, expires_at, fingerprint)
SELECT job.id, job.run_at, job.created_at, job.started_at, job.token, job.key_hold, job.attempt,
    job.max_attempts, coalesce(ending.crashes, job.crashes), job.log_lines, job.rank,
    job.cancel_requested, ending.taken, job.kind, job.queue, job.tenant, job.key, job.worker,
    job.payload, job.policy, job.tags, job.meta, job.progress,
    coalesce(ending.errors, job.errors), ending.state, ending.result,
    {now}, CASE WHEN ending.keep >= 0 THEN {now} + ending.keep END, ending.fingerprint
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE ending.keep <> 0
    AND job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
ON CONFLICT (id) DO NOTHING;

WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint}
)
INSERT INTO rowlock_key_hold (
    holder, token, lease_taken, state, kind, queue, tenant, key, key_until, until
)
SELECT job.id, job.token, ending.taken, ending.state, job.kind, job.queue, job.tenant, job.key,
    CASE WHEN job.key_hold > 0 THEN job.created_at + job.key_hold END,
    max(
        CASE WHEN ending.keep >= 0 THEN {now} + :remember ELSE 0 END,
        CASE WHEN job.key_hold > 0 THEN job.created_at + job.key_hold ELSE 0 END
    )
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
    AND (
        (ending.keep >= 0 AND ending.keep < :remember)
        OR (job.key_hold > 0 AND job.created_at + job.key_hold > {now})
    )
ON CONFLICT (holder) DO UPDATE
SET token = excluded.token, lease_taken = excluded.lease_taken, state = excluded.state,
    kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
    key = excluded.key, key_until = excluded.key_until, until = excluded.until;

WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint}
)
DELETE FROM rowlock_log
WHERE job_id IN (
    SELECT job.id
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE ending.keep = 0 AND job.log_lines > 0
        AND job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
);

WITH ending AS MATERIALIZED (
    {rows id, token, leased}
)
DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
)
RETURNING id

-- Move jobs out of the live table into a terminal state; fenced by token. Uses the primary key.
-- NULL errors or crashes leave what is stored; keep: -1 for ever. For jobs that are kept longer
-- than ids are remembered, and whose key is held by their row alone: the many.
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
WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
ON CONFLICT (id) DO NOTHING;

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

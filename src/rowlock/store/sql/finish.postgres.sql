-- Move jobs out of the live table into a terminal state; fenced by token. Uses job_pkey.
-- NULL errors or crashes leave what is stored; keep: -1 for ever. For jobs that are kept longer
-- than ids are remembered, and whose key is held by their row alone: the many.
-- The ids are asked for twice, here and wherever many jobs are changed: where the statistics say
-- that the table is empty, which they do while a queue is, the join alone was planned as a scan of
-- the whole table for each id (500 of 20,000 jobs: 15.8 s instead of 1 ms).
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
gone AS (
    DELETE FROM rowlock.job AS job
    USING unnest(
        :id::uuid[], :token::bigint[], :leased::boolean[], :taken::boolean[], :state::text[],
        :result::text[], :errors::text[], :crashes::integer[], :keep::bigint[],
        :fingerprint::text[]
    ) AS ending (id, token, leased, taken, state, result, errors, crashes, keep, fingerprint)
    WHERE job.id = ending.id
        AND job.id = ANY(:id::uuid[])
        AND job.token = ending.token
        AND (job.lease_expires_at IS NOT NULL) = ending.leased
    RETURNING
        job.id, job.run_at, job.created_at, job.started_at, job.token, job.key_hold, job.attempt,
        job.max_attempts, coalesce(ending.crashes, job.crashes) AS crashes, job.log_lines,
        job.rank, job.cancel_requested, ending.taken AS lease_taken, job.kind, job.queue,
        job.tenant, job.key, job.worker, job.payload, job.policy, job.tags, job.meta,
        job.progress, coalesce(ending.errors, job.errors) AS errors, ending.state,
        ending.result, ending.keep, ending.fingerprint
),
kept AS (
    INSERT INTO rowlock.finished ({shared}, state, result, finished_at, expires_at, fingerprint)
    SELECT {shared}, state, result, clock.now,
        CASE WHEN keep >= 0 THEN clock.now + keep END, fingerprint
    FROM gone, clock
    ON CONFLICT (id) DO NOTHING
)
SELECT id::text
FROM gone

-- As finish, for jobs whose id or key must be remembered beside or after their row. Uses job_pkey.
-- NULL errors or crashes leave what is stored; keep: -1 for ever, 0 not at all.
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
    WHERE keep <> 0
    ON CONFLICT (id) DO NOTHING
),
held AS (
    INSERT INTO rowlock.key_hold (
        holder, token, lease_taken, state, kind, queue, tenant, key, key_until, until
    )
    SELECT id, token, lease_taken, state, kind, queue, tenant, key,
        CASE WHEN key_hold > 0 THEN created_at + key_hold END,
        greatest(
            CASE WHEN keep >= 0 THEN clock.now + :remember::bigint ELSE 0 END,
            CASE WHEN key_hold > 0 THEN created_at + key_hold ELSE 0 END
        )
    FROM gone, clock
    WHERE (keep >= 0 AND keep < :remember::bigint)
        OR (key_hold > 0 AND created_at + key_hold > clock.now)
    ON CONFLICT (holder) DO UPDATE
    SET token = excluded.token, lease_taken = excluded.lease_taken, state = excluded.state,
        kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
        key = excluded.key, key_until = excluded.key_until, until = excluded.until
),
unlogged AS (
    DELETE FROM rowlock.log AS log
    USING gone
    WHERE gone.keep = 0 AND gone.log_lines > 0 AND log.job_id = gone.id
)
SELECT id::text
FROM gone

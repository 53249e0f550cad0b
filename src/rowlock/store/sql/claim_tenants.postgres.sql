-- Lease the first due jobs of some tenants, of one queue and rank, in their common order.
-- Uses job_tenant_lane once a lane. Candidates are read without a lock, eight times as many as
-- asked for, so that seven other claimers may hold the first ones.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
candidate AS MATERIALIZED (
    SELECT head.id, head.run_at
    FROM unnest(:tenants::text[], :kinds::text[]) AS lane (tenant, kind) CROSS JOIN LATERAL (
        SELECT job.id, job.run_at
        FROM rowlock.job AS job
        WHERE job.tenant = lane.tenant AND job.queue = :queue AND job.rank = :rank::smallint
            AND job.kind = lane.kind
            AND job.lease_expires_at IS NULL
            AND job.run_at <= (SELECT now FROM clock)
        ORDER BY job.run_at, job.id
        LIMIT :limit::bigint * 8
    ) AS head
    ORDER BY head.run_at, head.id
    LIMIT :limit::bigint * 8
),
picked AS MATERIALIZED (
    SELECT job.id
    FROM candidate JOIN rowlock.job AS job ON job.id = candidate.id
    WHERE job.lease_expires_at IS NULL
        AND job.run_at <= (SELECT now FROM clock)
    ORDER BY candidate.run_at, candidate.id
    LIMIT :limit
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE rowlock.job AS job
SET attempt = job.attempt + 1,
    token = job.token + 1,
    worker = :worker,
    started_at = clock.now,
    beat_at = clock.now,
    lease_expires_at = clock.now + :lease::bigint,
    lease_taken = false,
    begun = :begun::boolean
FROM clock, picked
WHERE job.id = picked.id
RETURNING {job}, clock.now

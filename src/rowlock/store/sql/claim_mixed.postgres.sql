-- Lease the first due jobs of several kinds of one queue and rank, in their common order.
-- Uses job_lane once a kind. Candidates are read without a lock, eight times as many as asked for,
-- so that seven other claimers may hold the first ones.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
candidate AS MATERIALIZED (
    SELECT head.id, head.run_at
    FROM unnest(:kinds::text[], :floors_at::bigint[], :floors_id::uuid[])
        AS lane (kind, floor_at, floor_id) CROSS JOIN LATERAL (
        SELECT job.id, job.run_at
        FROM rowlock.job AS job
        WHERE job.queue = :queue AND job.rank = :rank::smallint AND job.kind = lane.kind
            AND job.lease_expires_at IS NULL
            AND job.run_at <= (SELECT now FROM clock)
            AND (job.run_at, job.id) >= (lane.floor_at, lane.floor_id)
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

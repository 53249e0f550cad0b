-- name: count_before (postgres)
-- How many jobs of each lane come before a place in it, up to a cap, optionally of one tenant.
-- Uses job_lane or job_tenant_lane alone.
SELECT before.jobs
FROM unnest(
        :queue::text[], :rank::smallint[], :kind::text[], :run_at::bigint[], :id::uuid[]
    ) AS lane (queue, rank, kind, run_at, id),
    LATERAL (
        SELECT count(*) AS jobs
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE {tenant? job.tenant = :tenant AND} job.queue = lane.queue
                AND job.rank = lane.rank AND job.kind = lane.kind AND {waiting job}
                AND (job.run_at, job.id) < (lane.run_at, lane.id)
            LIMIT :cap
        ) AS capped
    ) AS before

-- name: count_before (sqlite)
-- How many jobs of a lane come before a place in it, up to a cap, optionally of one tenant.
-- Uses job_lane or job_tenant_lane alone.
SELECT count(*)
FROM (
    SELECT 1
    FROM rowlock_job AS job
    WHERE {tenant? job.tenant = :tenant AND} job.queue = :queue AND job.rank = :rank
        AND job.kind = :kind AND {waiting job}
        AND (job.run_at, job.id) < (:run_at, :id)
    LIMIT :cap
)

-- name: first_in_order
-- The first job of a key in the order of its limit, whether it runs or waits. Uses job_order.
SELECT job.id::text, job.tenant, job.lease_expires_at, job.run_at, job.worker,
    job.run_at <= (SELECT {now})
FROM rowlock.job AS job
WHERE job.limit_name = :limit_name AND job.limit_key = :key AND job.place IS NOT NULL
ORDER BY job.place, job.id
LIMIT 1

-- name: longest_under_limit
-- When the longest run under a limit began, of the first that are found. Uses job_turn.
SELECT min(running.started_at)
FROM (
    SELECT job.started_at
    FROM rowlock.job AS job
    WHERE {under_limit job}
    LIMIT :cap
) AS running

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

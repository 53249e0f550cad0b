-- As count_before, of one tenant's jobs only. Uses job_tenant_lane alone.
SELECT before.jobs
FROM unnest(
        :queue::text[], :rank::smallint[], :kind::text[], :run_at::bigint[], :id::uuid[]
    ) AS lane (queue, rank, kind, run_at, id),
    LATERAL (
        SELECT count(*) AS jobs
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.tenant = :tenant AND job.queue = lane.queue AND job.rank = lane.rank
                AND job.kind = lane.kind AND job.lease_expires_at IS NULL
                AND (job.run_at, job.id) < (lane.run_at, lane.id)
            LIMIT :cap
        ) AS capped
    ) AS before

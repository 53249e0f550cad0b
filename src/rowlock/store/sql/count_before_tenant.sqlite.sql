-- As count_before, of one tenant's jobs only. Uses job_tenant_lane alone.
SELECT count(*)
FROM (
    SELECT 1
    FROM rowlock_job AS job
    WHERE job.tenant = :tenant AND job.queue = :queue AND job.rank = :rank AND job.kind = :kind
        AND job.lease_expires_at IS NULL AND (job.run_at, job.id) < (:run_at, :id)
    LIMIT :cap
)

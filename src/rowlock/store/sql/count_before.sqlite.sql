-- How many jobs of a lane come before a place in it, up to a cap. Uses job_lane alone.
SELECT count(*)
FROM (
    SELECT 1
    FROM rowlock_job AS job
    WHERE job.queue = :queue AND job.rank = :rank AND job.kind = :kind
        AND job.lease_expires_at IS NULL AND (job.run_at, job.id) < (:run_at, :id)
    LIMIT :cap
)

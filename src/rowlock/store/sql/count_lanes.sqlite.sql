-- How many jobs of a lane are due, and how many wait, up to a cap. Uses job_lane alone.
SELECT
    :queue,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.queue = :queue AND job.rank = :rank AND job.kind = :kind
                AND job.lease_expires_at IS NULL AND job.run_at <= {now}
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.queue = :queue AND job.rank = :rank AND job.kind = :kind
                AND job.lease_expires_at IS NULL AND job.run_at > {now}
            LIMIT :cap
        )
    ),
    {now}

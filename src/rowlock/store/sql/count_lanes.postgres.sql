-- How many jobs of each lane are due, and how many wait, up to a cap. Uses job_lane alone.
SELECT lane.queue, due.jobs, later.jobs, {now}
FROM unnest(:queue::text[], :rank::smallint[], :kind::text[]) AS lane (queue, rank, kind),
    LATERAL (
        SELECT count(*) AS jobs
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.queue = lane.queue AND job.rank = lane.rank AND job.kind = lane.kind
                AND job.lease_expires_at IS NULL AND job.run_at <= (SELECT {now})
            LIMIT :cap
        ) AS capped
    ) AS due,
    LATERAL (
        SELECT count(*) AS jobs
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.queue = lane.queue AND job.rank = lane.rank AND job.kind = lane.kind
                AND job.lease_expires_at IS NULL AND job.run_at > (SELECT {now})
            LIMIT :cap
        ) AS capped
    ) AS later

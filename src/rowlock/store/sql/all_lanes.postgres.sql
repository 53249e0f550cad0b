-- Every lane of these queues and the time of its head, by a loose scan of job_lane.
WITH RECURSIVE lane AS (
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM unnest(:queues::text[]) AS asked (queue) CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at
        FROM rowlock.job AS job
        WHERE job.queue = asked.queue AND job.lease_expires_at IS NULL
        ORDER BY job.rank, job.kind, job.run_at
        LIMIT 1
    ) AS head
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM lane CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at
        FROM rowlock.job AS job
        WHERE job.queue = lane.queue AND job.lease_expires_at IS NULL
            AND (job.rank, job.kind) > (lane.rank, lane.kind)
        ORDER BY job.rank, job.kind, job.run_at
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, lane.run_at
FROM lane

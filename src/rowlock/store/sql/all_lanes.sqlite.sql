-- Every lane of these queues and the time of its head, by a loose scan of job_lane.
WITH RECURSIVE lane AS (
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM json_each(:queues) AS asked CROSS JOIN rowlock_job AS head ON head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE job.queue = asked.value AND job.lease_expires_at IS NULL
        ORDER BY job.rank, job.kind, job.run_at
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.queue = lane.queue AND job.lease_expires_at IS NULL
                AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.queue = lane.queue AND job.lease_expires_at IS NULL
                AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, lane.run_at
FROM lane

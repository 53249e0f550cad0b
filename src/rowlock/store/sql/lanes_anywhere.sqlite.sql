-- As lanes, for every queue there is: the same loose scan, over all of job_lane.
WITH RECURSIVE lane AS MATERIALIZED (
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM rowlock_job AS head
    WHERE head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE job.lease_expires_at IS NULL
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NULL
                AND job.queue = lane.queue AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NULL
                AND job.queue = lane.queue AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NULL AND job.queue > lane.queue
            ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, coalesce(queue.by_age, 0), lane.run_at, lane.id,
    NULL, NULL, NULL, NULL
FROM lane LEFT JOIN rowlock_queue AS queue ON queue.name = lane.queue
WHERE coalesce(queue.is_paused, 0) = 0
    AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, 0, 10 * (SELECT count(*) FROM lane)

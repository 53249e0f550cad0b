-- The lanes of these queues and the head of each, by a loose scan of job_lane: one probe a lane,
-- however many jobs wait in it. The last row says what time it is, whether leases have expired
-- (uses job_lease), and for how many microseconds all this has taken, about: ten a lane.
WITH RECURSIVE open_queue AS MATERIALIZED (
    SELECT asked.value AS queue, coalesce(queue.by_age, 0) AS by_age
    FROM json_each(:queues) AS asked
        LEFT JOIN rowlock_queue AS queue ON queue.name = asked.value
    WHERE coalesce(queue.is_paused, 0) = 0
),
lane AS MATERIALIZED (
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM open_queue CROSS JOIN rowlock_job AS head ON head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE job.queue = open_queue.queue AND job.lease_expires_at IS NULL
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.queue = lane.queue AND job.lease_expires_at IS NULL
                AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.queue = lane.queue AND job.lease_expires_at IS NULL
                AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, open_queue.by_age, lane.run_at, lane.id,
    NULL, NULL, NULL, NULL
FROM lane JOIN open_queue ON open_queue.queue = lane.queue
WHERE :kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, :expired AND EXISTS (
    SELECT 1
    FROM rowlock_job AS job
    WHERE job.lease_expires_at <= {now}
        AND job.queue IN (SELECT value FROM json_each(:queues))
),
    10 * (SELECT count(*) FROM lane)

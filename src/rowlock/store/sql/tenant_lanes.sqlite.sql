-- As lanes, for the jobs of some tenants only. Uses job_tenant_lane, job_lease.
WITH RECURSIVE open_queue AS MATERIALIZED (
    SELECT asked.value AS queue, coalesce(queue.by_age, 0) AS by_age
    FROM json_each(:queues) AS asked
        LEFT JOIN rowlock_queue AS queue ON queue.name = asked.value
    WHERE coalesce(queue.is_paused, 0) = 0
),
lane AS MATERIALIZED (
    SELECT head.tenant, head.queue, head.rank, head.kind, head.run_at, head.id
    FROM open_queue CROSS JOIN json_each(:tenants) AS asked
        CROSS JOIN rowlock_job AS head ON head.id = (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.tenant = asked.value AND job.queue = open_queue.queue
                AND job.lease_expires_at IS NULL
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    UNION ALL
    SELECT head.tenant, head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.tenant = lane.tenant AND job.queue = lane.queue
                AND job.lease_expires_at IS NULL
                AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.tenant = lane.tenant AND job.queue = lane.queue
                AND job.lease_expires_at IS NULL
                AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, open_queue.by_age, lane.run_at, lane.id,
    lane.tenant, NULL, NULL, NULL
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

-- The lanes of these queues and the head of each, by a loose scan of job_lane: one probe a lane,
-- however many jobs wait in it. The last row says what time it is, whether leases have expired
-- (uses job_lease), and for how many microseconds all this has taken.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT {now} AS now
),
open_queue AS MATERIALIZED (
    SELECT asked.queue, coalesce(queue.by_age, false) AS by_age
    FROM unnest(:queues::text[]) AS asked (queue)
        LEFT JOIN rowlock.queue AS queue ON queue.name = asked.queue
    WHERE queue.is_paused IS NOT TRUE
),
lane AS (
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM open_queue CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE job.queue = open_queue.queue AND job.lease_expires_at IS NULL
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE job.queue = lane.queue AND job.lease_expires_at IS NULL
            AND (job.rank, job.kind) > (lane.rank, lane.kind)
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, open_queue.by_age, lane.run_at, lane.id::text,
    NULL::text AS tenant, NULL::bigint AS now, NULL::boolean AS is_late, NULL::bigint AS spent
FROM lane JOIN open_queue ON open_queue.queue = lane.queue
WHERE :kinds::text[] IS NULL OR lane.kind = ANY (:kinds::text[])
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock.now, :expired::boolean AND EXISTS (
    -- Sorted, so that job_lease is used also when the planner thinks that leases are many.
    SELECT FROM (
        SELECT job.queue
        FROM rowlock.job AS job
        WHERE job.lease_expires_at <= (SELECT now FROM clock)
        ORDER BY job.lease_expires_at
        OFFSET 0
    ) AS late
    WHERE late.queue = ANY (:queues::text[])
),
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint
FROM clock

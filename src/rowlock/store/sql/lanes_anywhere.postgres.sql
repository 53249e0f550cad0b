-- As lanes, for every queue there is: the same loose scan, over all of job_lane.
WITH RECURSIVE lane AS (
    (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE job.lease_expires_at IS NULL
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE job.lease_expires_at IS NULL
            AND (job.queue, job.rank, job.kind) > (lane.queue, lane.rank, lane.kind)
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, coalesce(queue.by_age, false), lane.run_at, lane.id::text,
    NULL::text AS tenant, NULL::bigint AS now, NULL::boolean AS is_late, NULL::bigint AS spent
FROM lane LEFT JOIN rowlock.queue AS queue ON queue.name = lane.queue
WHERE queue.is_paused IS NOT TRUE
    AND (:kinds::text[] IS NULL OR lane.kind = ANY (:kinds::text[]))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, false,
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint

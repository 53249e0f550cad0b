-- The names of all queues in use, each by one probe. Uses job_lane, job_lease, finished_queue.
WITH RECURSIVE waiting AS (
    (SELECT min(job.queue) AS queue FROM rowlock.job AS job WHERE job.lease_expires_at IS NULL)
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock.job AS job
        WHERE job.lease_expires_at IS NULL AND job.queue > waiting.queue
    )
    FROM waiting
    WHERE waiting.queue IS NOT NULL
),
ended AS (
    (
        SELECT min(finished.queue) AS queue
        FROM rowlock.finished AS finished
        WHERE finished.state <> 'succeeded'
    )
    UNION ALL
    SELECT (
        SELECT min(finished.queue)
        FROM rowlock.finished AS finished
        WHERE finished.state <> 'succeeded' AND finished.queue > ended.queue
    )
    FROM ended
    WHERE ended.queue IS NOT NULL
)
SELECT queue FROM waiting WHERE queue IS NOT NULL
UNION
SELECT job.queue FROM rowlock.job AS job WHERE job.lease_expires_at IS NOT NULL
UNION
SELECT queue FROM ended WHERE queue IS NOT NULL
UNION
SELECT queue.name FROM rowlock.queue AS queue
ORDER BY 1

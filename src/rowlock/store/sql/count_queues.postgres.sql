-- What else is in each queue, up to a cap: (queue, retrying, running, dead, cancelled, paused).
-- Uses job_retried, job_lease, finished_queue.
SELECT asked.queue,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.queue = asked.queue AND job.lease_expires_at IS NULL AND job.attempt > 0
                AND job.run_at > job.created_at
                AND job.run_at > (SELECT {now})
            LIMIT :cap
        ) AS capped
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.lease_expires_at IS NOT NULL AND job.queue = asked.queue
            LIMIT :cap
        ) AS capped
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.finished AS finished
            WHERE finished.queue = asked.queue AND finished.state = 'dead'
            LIMIT :cap
        ) AS capped
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.finished AS finished
            WHERE finished.queue = asked.queue AND finished.state = 'cancelled'
            LIMIT :cap
        ) AS capped
    ),
    coalesce(
        (SELECT queue.is_paused FROM rowlock.queue AS queue WHERE queue.name = asked.queue), false
    )
FROM unnest(:queue::text[]) AS asked (queue)

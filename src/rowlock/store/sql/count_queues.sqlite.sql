-- What else is in a queue, up to a cap: (queue, retrying, running, dead, cancelled, paused).
-- Uses job_retried, job_lease, finished_queue: the last only where its own condition is repeated,
-- since SQLite does not see that one follows from the other.
SELECT :queue,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.queue = :queue AND job.lease_expires_at IS NULL AND job.attempt > 0
                AND job.run_at > job.created_at
                AND job.run_at > {now}
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NOT NULL AND job.queue = :queue
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_finished AS finished
            WHERE finished.queue = :queue AND finished.state = 'dead'
                AND finished.state <> 'succeeded'
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_finished AS finished
            WHERE finished.queue = :queue AND finished.state = 'cancelled'
                AND finished.state <> 'succeeded'
            LIMIT :cap
        )
    ),
    coalesce(
        (SELECT queue.is_paused FROM rowlock_queue AS queue WHERE queue.name = :queue), 0
    )

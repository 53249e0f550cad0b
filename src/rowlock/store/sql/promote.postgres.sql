-- In queues ordered by age, due retries go back to the places of their age. Uses job_retried, which
-- holds only those that did not yet.
UPDATE rowlock.job
SET run_at = created_at
WHERE id IN (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.queue = ANY (:queues::text[])
        AND job.lease_expires_at IS NULL
        AND job.attempt > 0
        AND job.run_at <= (SELECT {now})
        AND job.run_at > job.created_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING 1

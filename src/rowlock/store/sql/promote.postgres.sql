-- In queues ordered by age, a retry that is due goes back to its age's place. Uses job_retried.
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
    FOR UPDATE SKIP LOCKED
)

-- In queues ordered by age, a retry that is due goes back to its age's place. Uses job_retried.
UPDATE rowlock_job
SET run_at = created_at
WHERE queue IN (SELECT value FROM json_each(:queues))
    AND lease_expires_at IS NULL
    AND attempt > 0
    AND run_at <= {now}
    AND run_at > created_at

-- needs 0009
-- Retries that were promoted in a queue ordered by age leave the index that finds the next ones.

DROP INDEX rowlock.job_retried;
CREATE INDEX job_retried ON rowlock.job (queue, run_at)
    WHERE lease_expires_at IS NULL AND attempt > 0 AND run_at > created_at;

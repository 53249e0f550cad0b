-- Let the jobs of a batch wait here again: it will never be in the other database. Uses job_lease.
UPDATE rowlock.job AS job
SET worker = NULL, lease_expires_at = NULL, beat_at = NULL
WHERE job.lease_expires_at = :for_ever::bigint AND job.worker = :worker
RETURNING job.id::text, job.queue, job.cancel_requested

-- Let the jobs of a batch wait here again: it will never be in the other database. Uses job_lease.
UPDATE rowlock_job
SET worker = NULL, lease_expires_at = NULL, beat_at = NULL
WHERE lease_expires_at = :for_ever AND worker = :worker
RETURNING id, queue, cancel_requested

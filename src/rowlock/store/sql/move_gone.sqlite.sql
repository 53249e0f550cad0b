-- Remove the jobs of a batch that is in the other database. Uses job_lease.
DELETE FROM rowlock_job
WHERE lease_expires_at = :for_ever AND worker = :worker
RETURNING id, cancel_requested

-- Remove the jobs of a batch that is in the other database. Uses job_lease.
DELETE FROM rowlock.job AS job
WHERE job.lease_expires_at = :for_ever::bigint AND job.worker = :worker
RETURNING job.id::text, job.cancel_requested

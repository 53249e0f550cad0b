-- Remove the jobs of a batch that is in the other database; one that somebody asked to cancel only
-- when the other database knows of it. Uses job_lease.
DELETE FROM rowlock.job AS job
WHERE job.lease_expires_at = :for_ever::bigint AND job.worker = :worker
    AND (NOT job.cancel_requested OR job.id = ANY (:cancelled::uuid[]))
RETURNING job.id::text

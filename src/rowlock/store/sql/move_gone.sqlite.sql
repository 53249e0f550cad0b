-- Remove the jobs of a batch that is in the other database; one that somebody asked to cancel only
-- when the other database knows of it. Uses job_lease.
DELETE FROM rowlock_job
WHERE lease_expires_at = :for_ever AND worker = :worker
    AND (NOT cancel_requested OR id IN (SELECT value FROM json_each(:cancelled)))
RETURNING id

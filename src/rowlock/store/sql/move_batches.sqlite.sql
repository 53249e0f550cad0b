-- The batches of moves that were not brought to an end. Uses job_lease.
SELECT DISTINCT job.worker
FROM rowlock_job AS job
WHERE job.lease_expires_at = :for_ever
ORDER BY 1

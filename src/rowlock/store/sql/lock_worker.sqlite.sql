-- Running jobs that a worker holds. Walks job_lease: the running.
SELECT {held}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at IS NOT NULL
    AND job.worker = :worker
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

-- Who runs what. Walks job_lease: the running.
SELECT job.worker, job.id, job.beat_at
FROM rowlock_job AS job
WHERE job.lease_expires_at IS NOT NULL
ORDER BY job.worker, job.id
LIMIT :limit

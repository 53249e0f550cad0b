-- How many jobs of each queue each worker holds. Walks job_lease: the running.
SELECT held.worker, held.queue, count(*)
FROM (
    SELECT job.worker, job.queue
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NOT NULL
    LIMIT :limit
) AS held
GROUP BY held.worker, held.queue

-- Running jobs of these queues that were not heard of for so long. Walks job_lease: the running.
SELECT {held}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at IS NOT NULL
    AND job.beat_at <= {now} - :older_than
    AND job.queue IN (SELECT value FROM json_each(:queues))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

-- Running jobs whose lease expired so long ago, the longest first. Uses job_lease.
SELECT {job}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at <= {now} - :older_than
    AND (:queues IS NULL OR job.queue IN (SELECT value FROM json_each(:queues)))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

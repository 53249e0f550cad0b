-- Running jobs whose lease expired so long ago, the longest first. Uses job_lease.
SELECT {job}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at <= (SELECT {now}) - :older_than::bigint
    AND (:queues::text[] IS NULL OR job.queue = ANY (:queues::text[]))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job SKIP LOCKED

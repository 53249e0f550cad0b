-- Running jobs of these queues that were not heard of for so long. Walks job_lease: the running.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at IS NOT NULL
    AND job.beat_at <= (SELECT {now}) - :older_than::bigint
    AND job.queue = ANY (:queues::text[])
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job SKIP LOCKED

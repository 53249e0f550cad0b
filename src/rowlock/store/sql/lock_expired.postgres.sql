-- Running jobs whose lease expired so long ago, the longest first. Uses job_lease.
-- After a step of the clock, those last extended before it wait for one beat: `ClockWatch`.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at <= (SELECT {now}) - :older_than::bigint
    AND (
        job.beat_at > :stepped_at::bigint
        OR job.lease_expires_at - job.beat_at <= 3 * :waited::bigint
    )
    AND (:queues::text[] IS NULL OR job.queue = ANY (:queues::text[]))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job SKIP LOCKED

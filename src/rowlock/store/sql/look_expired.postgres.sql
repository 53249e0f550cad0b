-- Leases that have expired, the longest ago first. Uses job_lease.
-- After a step of the clock, those last extended before it wait for one beat: `ClockWatch`.
SELECT job.id::text, job.token, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at <= (SELECT {now})
    AND (
        job.beat_at > :stepped_at::bigint
        OR job.lease_expires_at - job.beat_at <= 3 * :waited::bigint
    )
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job SKIP LOCKED

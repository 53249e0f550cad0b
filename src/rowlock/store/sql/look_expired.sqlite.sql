-- Leases that have expired, the longest ago first. Uses job_lease.
-- After a step of the clock, those last extended before it wait for one beat: `ClockWatch`.
SELECT job.id, job.token, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at <= {now}
    AND (job.beat_at > :stepped_at OR job.lease_expires_at - job.beat_at <= 3 * :waited)
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

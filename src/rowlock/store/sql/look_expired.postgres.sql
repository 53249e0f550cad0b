-- Leases that have expired, the longest ago first. Uses job_lease.
SELECT job.id::text, job.token, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at <= (SELECT {now})
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job SKIP LOCKED

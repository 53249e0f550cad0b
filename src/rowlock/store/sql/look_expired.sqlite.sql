-- Leases that have expired, the longest ago first. Uses job_lease.
SELECT job.id, job.token, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at <= {now}
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

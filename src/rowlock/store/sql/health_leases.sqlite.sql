-- How many leases are over, up to a cap, and when the oldest ended. Uses job_lease.
SELECT count(*), min(late.lease_expires_at), {now}
FROM (
    SELECT job.lease_expires_at
    FROM rowlock_job AS job
    WHERE job.lease_expires_at <= {now}
    ORDER BY job.lease_expires_at
    LIMIT :cap
) AS late

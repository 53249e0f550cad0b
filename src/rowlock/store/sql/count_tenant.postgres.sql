-- Jobs of a tenant by queue and state, the oldest of each, of at most so many rows of each table.
-- Uses job_tenant_lane for what waits, job_lease for what runs, finished_pkey for what has ended.
SELECT counted.queue, counted.state, count(*), min(counted.run_at)
FROM (
    SELECT waiting.queue, waiting.run_at,
        CASE
            WHEN waiting.run_at <= (SELECT {now}) THEN 'ready'
            WHEN waiting.attempt = 0 THEN 'scheduled'
            ELSE 'retrying'
        END AS state
    FROM (
        SELECT job.queue, job.run_at, job.attempt
        FROM rowlock.job AS job
        WHERE job.tenant = :tenant AND job.lease_expires_at IS NULL
        LIMIT :scan
    ) AS waiting
    UNION ALL
    SELECT running.queue, running.run_at, 'running'
    FROM (
        SELECT job.queue, job.run_at
        FROM rowlock.job AS job
        WHERE job.tenant = :tenant AND job.lease_expires_at IS NOT NULL
        LIMIT :scan
    ) AS running
    UNION ALL
    SELECT ended.queue, ended.run_at, ended.state
    FROM (
        SELECT finished.queue, finished.run_at, finished.state, finished.tenant
        FROM rowlock.finished AS finished
        ORDER BY finished.id DESC
        LIMIT :scan
    ) AS ended
    WHERE ended.tenant = :tenant
) AS counted
GROUP BY counted.queue, counted.state

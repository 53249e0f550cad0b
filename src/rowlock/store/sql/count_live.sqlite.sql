-- All live jobs by queue: (queue, ready, due later, retrying, running). Reads job_lane, job_retried
-- and job_lease to their ends: exact, and for once in a while.
SELECT counted.queue, sum(counted.due), sum(counted.later), sum(counted.back), sum(counted.running)
FROM (
    SELECT job.queue, count(*) FILTER (WHERE job.run_at <= (SELECT {now})) AS due,
        count(*) FILTER (WHERE job.run_at > (SELECT {now})) AS later, 0 AS back, 0 AS running
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, count(*), 0
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL AND job.attempt > 0 AND job.run_at > job.created_at
        AND job.run_at > (SELECT {now})
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, 0, count(*)
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NOT NULL
    GROUP BY job.queue
) AS counted
GROUP BY counted.queue

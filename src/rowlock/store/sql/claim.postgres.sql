-- Lease the first due jobs of one lane. Uses job_lane; takes locks one by one, skips locked rows.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
picked AS MATERIALIZED (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.queue = :queue AND job.rank = :rank::smallint AND job.kind = :kind
        AND job.lease_expires_at IS NULL
        AND job.run_at <= (SELECT now FROM clock)
    ORDER BY job.run_at, job.id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE rowlock.job AS job
SET attempt = job.attempt + 1,
    token = job.token + 1,
    worker = :worker,
    started_at = clock.now,
    beat_at = clock.now,
    lease_expires_at = clock.now + :lease::bigint,
    lease_taken = false
FROM clock, picked
WHERE job.id = picked.id
RETURNING {job}, clock.now

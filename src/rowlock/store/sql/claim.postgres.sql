-- Lease the first due jobs of one lane. Uses job_lane; takes locks one by one, skips locked rows.
-- Below the floor there was nothing when the claimer last looked, but maybe many dead entries.
-- By ctid, of rows that are locked: no join, whose plan might be one of an empty table.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
picked AS MATERIALIZED (
    SELECT job.ctid
    FROM rowlock.job AS job
    WHERE job.queue = :queue AND job.rank = :rank::smallint AND job.kind = :kind
        AND job.lease_expires_at IS NULL
        AND job.run_at <= (SELECT now FROM clock)
        AND (job.run_at, job.id) >= (:floor_at::bigint, :floor_id::uuid)
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
    lease_taken = false,
    begun = :begun::boolean
FROM clock
WHERE job.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked))
RETURNING {job}, clock.now

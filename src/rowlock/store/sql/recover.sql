-- fragment: is_certain
-- After a clock step, leases last extended before it wait for one heartbeat: `ClockWatch`.
(
    coalesce({of}.beat_at, {of}.started_at) > :stepped_at::bigint
    OR {of}.lease_expires_at - coalesce({of}.beat_at, {of}.started_at) <= 3 * :waited::bigint
)

-- fragment: over (postgres)
-- Remove claims of which no lease is left. None can come back: a job that is claimed again is in
-- another claim. All claims are read: a heartbeat takes leases out of them, so they are few.
{of} AS (
    DELETE FROM rowlock.claim AS claim
    WHERE claim.id = ANY (ARRAY(
        SELECT claim.id
        FROM rowlock.claim AS claim
        WHERE NOT EXISTS (
            SELECT FROM (
                SELECT
                FROM rowlock.job AS job
                WHERE {noted_in claim}
                ORDER BY job.run_at, job.id
                LIMIT 1
            ) AS held
        )
        ORDER BY claim.until
        LIMIT :limit
        FOR UPDATE OF claim SKIP LOCKED
    ))
)

-- name: look_expired (postgres)
-- Leases that have expired, oldest first. Uses job_lease, claim_until and job_lane.
-- Claims that hold none any more are removed.
WITH {over empty},
indexed AS MATERIALIZED (
    SELECT job.id::text, job.token
    FROM rowlock.job AS job
    WHERE job.indexed_lease <= (SELECT {now})
        AND {is_certain job}
    ORDER BY job.indexed_lease, job.id
    LIMIT :limit
    FOR UPDATE OF job SKIP LOCKED
),
noted AS MATERIALIZED (
    SELECT job.id::text, job.token
    FROM (
        SELECT *
        FROM rowlock.claim AS claim
        WHERE claim.until <= (SELECT {now})
        ORDER BY claim.until
        OFFSET 0
    ) AS claim CROSS JOIN LATERAL (
        SELECT job.id, job.token
        FROM rowlock.job AS job
        WHERE {noted_in claim}
            AND {is_certain job}
        ORDER BY job.run_at, job.id
        FOR UPDATE OF job SKIP LOCKED
    ) AS job
    LIMIT :limit::bigint - (SELECT count(*) FROM indexed)
)
SELECT late.id, late.token, {now}
FROM (SELECT * FROM indexed UNION ALL SELECT * FROM noted) AS late

-- name: look_expired (sqlite)
-- Leases that have expired, oldest first. Uses job_lease.
SELECT job.id, job.token, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at <= {now}
    AND {is_certain job}
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

-- name: lock_expired (postgres)
-- Running jobs whose lease expired at least :older_than ago: those in job_lease, then those noted
-- in claims, each oldest first. Uses job_lease, claim_until and job_lane.
-- Claims that hold none any more are removed.
WITH {over empty},
indexed AS MATERIALIZED (
    SELECT {held}, job.lease_taken, {now}
    FROM rowlock.job AS job
    WHERE job.indexed_lease <= (SELECT {now}) - :older_than::bigint
        AND {is_certain job}
        AND (:queues::text[] IS NULL OR job.queue = ANY (:queues::text[]))
    ORDER BY job.indexed_lease, job.id
    LIMIT :limit
    FOR UPDATE OF job SKIP LOCKED
),
noted AS MATERIALIZED (
    SELECT {held}, job.lease_taken, {now}
    FROM (
        SELECT *
        FROM rowlock.claim AS claim
        WHERE claim.until <= (SELECT {now}) - :older_than::bigint
            AND (:queues::text[] IS NULL OR claim.queue = ANY (:queues::text[]))
        ORDER BY claim.until
        OFFSET 0
    ) AS claim CROSS JOIN LATERAL (
        SELECT *
        FROM rowlock.job AS job
        WHERE {noted_in claim}
            AND {is_certain job}
        ORDER BY job.run_at, job.id
        FOR UPDATE OF job SKIP LOCKED
    ) AS job
    LIMIT :limit::bigint - (SELECT count(*) FROM indexed)
)
SELECT * FROM indexed
UNION ALL
SELECT * FROM noted

-- name: lock_expired (sqlite)
-- Running jobs whose lease expired at least :older_than ago, oldest first. Uses job_lease.
SELECT {held}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at <= {now} - :older_than
    AND {is_certain job}
    AND (:queues IS NULL OR job.queue IN (SELECT value FROM json_each(:queues)))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

-- name: lock_orphans (postgres)
-- Running jobs of these queues without a heartbeat for :older_than. Walks job_lease and the claims:
-- the running.
WITH indexed AS MATERIALIZED (
    SELECT {held}, job.lease_taken, {now}
    FROM rowlock.job AS job
    WHERE job.indexed_lease IS NOT NULL
        AND coalesce(job.beat_at, job.started_at) <= (SELECT {now}) - :older_than::bigint
        AND job.queue = ANY (:queues::text[])
    ORDER BY job.indexed_lease, job.id
    LIMIT :limit
    FOR UPDATE OF job SKIP LOCKED
),
noted AS MATERIALIZED (
    SELECT {held}, job.lease_taken, {now}
    FROM (
        SELECT *
        FROM rowlock.claim AS claim
        WHERE claim.queue = ANY (:queues::text[])
        ORDER BY claim.until
        OFFSET 0
    ) AS claim CROSS JOIN LATERAL (
        SELECT *
        FROM rowlock.job AS job
        WHERE {noted_in claim}
            AND job.started_at <= (SELECT {now}) - :older_than::bigint
        ORDER BY job.run_at, job.id
        FOR UPDATE OF job SKIP LOCKED
    ) AS job
    LIMIT :limit::bigint - (SELECT count(*) FROM indexed)
)
SELECT * FROM indexed
UNION ALL
SELECT * FROM noted

-- name: lock_orphans (sqlite)
-- Running jobs of these queues without a heartbeat for :older_than. Uses job_lease.
SELECT {held}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at IS NOT NULL
    AND job.beat_at <= {now} - :older_than
    AND job.queue IN (SELECT value FROM json_each(:queues))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

-- name: lock_worker (postgres)
-- Running jobs that a worker holds. Walks job_lease and the worker's claims: the running.
-- The ids are found first: a lease that a heartbeat moves to job_lease while this waits for its row
-- is still the worker's.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.id = ANY (ARRAY(SELECT held.id FROM ({running job}) AS held WHERE held.worker = :worker))
    AND job.lease_expires_at IS NOT NULL
    AND job.worker = :worker
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job

-- name: lock_worker (sqlite)
-- Running jobs that a worker holds. Walks job_lease: the running.
SELECT {held}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at IS NOT NULL
    AND job.worker = :worker
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

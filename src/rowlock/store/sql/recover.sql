-- name: look_expired
-- Leases that have expired, oldest first. Uses job_lease.
-- After a clock step, leases last extended before it wait for one heartbeat: `ClockWatch`.
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

-- name: lock_expired
-- Running jobs whose lease expired at least :older_than ago, oldest first. Uses job_lease.
-- After a clock step, leases last extended before it wait for one heartbeat: `ClockWatch`.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at <= (SELECT {now}) - :older_than::bigint
    AND (
        job.beat_at > :stepped_at::bigint
        OR job.lease_expires_at - job.beat_at <= 3 * :waited::bigint
    )
    AND (:queues::text[] IS NULL OR job.queue = ANY (:queues::text[]))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job SKIP LOCKED

-- name: lock_orphans
-- Running jobs of these queues without a heartbeat for :older_than. Uses job_lease.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at IS NOT NULL
    AND job.beat_at <= (SELECT {now}) - :older_than::bigint
    AND job.queue = ANY (:queues::text[])
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job SKIP LOCKED

-- name: lock_worker
-- Running jobs that a worker holds. Walks job_lease: the running.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.lease_expires_at IS NOT NULL
    AND job.worker = :worker
ORDER BY job.lease_expires_at, job.id
LIMIT :limit
FOR UPDATE OF job

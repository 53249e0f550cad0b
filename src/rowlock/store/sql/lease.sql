-- name: heartbeat (postgres)
-- Extend leases; fenced by token. From the first time on, job_lease has them. Uses job_pkey.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
UPDATE rowlock.job AS job
SET lease_expires_at = clock.now + :lease::bigint,
    indexed_lease = clock.now + :lease::bigint,
    beat_at = clock.now
FROM clock, unnest(:id::uuid[], :token::bigint[]) AS held (id, token)
WHERE job.id = held.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = held.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text, job.token, job.cancel_requested

-- name: heartbeat (sqlite)
-- Extend a lease; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET lease_expires_at = {now} + :lease,
    beat_at = {now}
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id, token, cancel_requested

-- name: begin (postgres)
-- Mark runs as begun, before their handlers run; fenced by token. Uses job_pkey.
UPDATE rowlock.job AS job
SET begun = true
FROM unnest(:id::uuid[], :token::bigint[]) AS run (id, token)
WHERE job.id = run.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = run.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text, job.token

-- name: begin (sqlite)
-- Mark a run as begun, before its handler runs; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET begun = 1
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id, token

-- name: cancel_requests
-- The running jobs among these that were asked to cancel. Uses job_pkey.
SELECT job.id::text
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[]) AND job.cancel_requested

-- name: progress
-- Set the progress of a running job; fenced by token. Uses job_pkey.
UPDATE rowlock.job
SET progress = :progress
WHERE id = :id::uuid AND token = :token::bigint AND lease_expires_at IS NOT NULL
RETURNING id::text

-- name: log_write (postgres)
-- Store lines of a job's log.
INSERT INTO rowlock.log (job_id, line, at, text)
SELECT fresh.job_id, fresh.line, {now}, fresh.text
FROM unnest(:job_id::uuid[], :line::integer[], :text::text[]) AS fresh (job_id, line, text)

-- name: log_write (sqlite)
-- Store a line of a job's log.
INSERT INTO rowlock_log (job_id, line, at, text)
VALUES (:job_id, :line, {now}, :text)

-- name: log_count
-- Add to a running job's number of lines; fenced by token. Returns the old number. Uses job_pkey.
UPDATE rowlock.job
SET log_lines = log_lines + :lines::integer
WHERE id = :id::uuid AND token = :token::bigint AND lease_expires_at IS NOT NULL
RETURNING log_lines - :lines::integer

-- name: log_read
-- The lines of a job's log. Uses log_pkey.
SELECT log.at, log.text
FROM rowlock.log AS log
WHERE log.job_id = :id::uuid
ORDER BY log.line

-- name: announce (postgres)
-- Register a worker, or refresh its registration.
INSERT INTO rowlock.worker (id, started_at, beat_at, pid, host, queues, kinds, vitals)
SELECT :worker, clock.now, clock.now, :pid::integer, :host, :queues_json, :kinds_json, :vitals::text
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO UPDATE
SET beat_at = excluded.beat_at, queues = excluded.queues, kinds = excluded.kinds,
    vitals = excluded.vitals

-- name: announce (sqlite)
-- Register a worker, or refresh its registration.
INSERT INTO rowlock_worker (id, started_at, beat_at, pid, host, queues, kinds, vitals)
VALUES (:worker, {now}, {now}, :pid, :host, :queues_json, :kinds_json, :vitals)
ON CONFLICT (id) DO UPDATE
SET beat_at = excluded.beat_at, queues = excluded.queues, kinds = excluded.kinds,
    vitals = excluded.vitals

-- name: depart
-- Remove a worker that has stopped.
DELETE FROM rowlock.worker
WHERE id = :worker

-- name: forget_workers
-- Remove workers without a heartbeat for long. Their leases are on the jobs.
DELETE FROM rowlock.worker
WHERE beat_at < (SELECT {now}) - :silence::bigint

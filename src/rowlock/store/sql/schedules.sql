-- name: list_schedules
-- Schedules by name, after a name, of one tenant if one is given. Uses the primary key.
SELECT {schedule}
FROM rowlock.schedule AS schedule
WHERE schedule.name > :after
    AND (:tenant::text IS NULL OR schedule.tenant = :tenant::text)
ORDER BY schedule.name
LIMIT :limit

-- name: lock_schedule
-- Lock a schedule until the transaction ends. Uses the primary key.
SELECT {schedule}, {now}
FROM rowlock.schedule AS schedule
WHERE schedule.name = :name
FOR UPDATE OF schedule

-- name: lock_declared
-- Lock the schedules that came from code until the transaction ends, in one order.
SELECT schedule.name
FROM rowlock.schedule AS schedule
WHERE schedule.source = 'code'
ORDER BY schedule.name
FOR UPDATE OF schedule

-- name: add_schedule
-- Insert a schedule, unless there is one of that name. Uses the primary key.
INSERT INTO rowlock.schedule (
    name, kind, queue, rank, tenant, key, key_hold, payload, max_attempts, tags, meta, policy,
    cron, timezone, missed, source, next_at
)
VALUES (
    :name, :kind, :queue, :rank, :tenant, :key, :key_hold, :payload, :max_attempts, :tags, :meta,
    :policy, :cron, :timezone, :missed, :source, :next_at
)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: change_schedule
-- Replace a schedule's definition. It stays paused if it is. Uses the primary key.
UPDATE rowlock.schedule
SET
    kind = :kind, queue = :queue, rank = :rank, tenant = :tenant, key = :key,
    key_hold = :key_hold, payload = :payload, max_attempts = :max_attempts, tags = :tags,
    meta = :meta, policy = :policy, cron = :cron, timezone = :timezone, missed = :missed,
    source = :source, next_at = :next_at
WHERE name = :name

-- name: pause_schedule
-- Pause a schedule, or resume it from a new time on. Uses the primary key.
UPDATE rowlock.schedule
SET is_paused = :is_paused, next_at = :next_at
WHERE name = :name

-- name: drop_schedule
-- Remove a schedule. Its jobs stay. Uses the primary key.
DELETE FROM rowlock.schedule
WHERE name = :name
RETURNING name

-- name: drop_undeclared (postgres)
-- Remove schedules that came from code and are no longer in it. Walks the table: it is small.
DELETE FROM rowlock.schedule
WHERE source = 'code'
    AND name <> ALL (:names::text[])
    AND (:owns_all::boolean OR kind = ANY (:kinds::text[]))
RETURNING name

-- name: drop_undeclared (sqlite)
-- Remove schedules that came from code and are no longer in it. Walks the table: it is small.
DELETE FROM rowlock_schedule
WHERE source = 'code'
    AND name NOT IN (SELECT value FROM json_each(:names))
    AND (:owns_all OR kind IN (SELECT value FROM json_each(:kinds)))
RETURNING name

-- name: due_schedules
-- Schedules with a due tick that no other process is firing, oldest first. Uses schedule_due.
SELECT {schedule}
FROM rowlock.schedule AS schedule
WHERE NOT schedule.is_paused
    AND schedule.next_at <= :until
    AND (schedule.next_at, schedule.name) > (:after_at, :after_name)
ORDER BY schedule.next_at, schedule.name
LIMIT :limit
FOR UPDATE OF schedule SKIP LOCKED

-- name: next_schedule
-- The time until the next tick that is later than those just fired. Uses schedule_due.
SELECT schedule.next_at - {now}
FROM rowlock.schedule AS schedule
WHERE NOT schedule.is_paused
    AND schedule.next_at > :since
ORDER BY schedule.next_at
LIMIT 1

-- name: advance_schedules (postgres)
-- Claim due ticks: advance from the old time, unless another process has. Uses the primary key.
UPDATE rowlock.schedule AS schedule
SET next_at = fresh.next_at
FROM unnest(:name::text[], :expected_at::bigint[], :next_at::bigint[])
    AS fresh (name, expected_at, next_at)
WHERE schedule.name = fresh.name
    AND schedule.next_at = fresh.expected_at
RETURNING schedule.name

-- name: advance_schedules (sqlite)
-- Claim due ticks: advance from the old time, unless another process has. Uses the primary key.
UPDATE rowlock_schedule
SET next_at = :next_at
WHERE name = :name
    AND next_at = :expected_at
RETURNING name

-- name: note_runs (postgres)
-- Record the last job of schedules. Uses the primary key.
UPDATE rowlock.schedule AS schedule
SET last_at = clock.now, last_job_id = fresh.job_id
FROM (SELECT {now} AS now) AS clock,
    unnest(:name::text[], :job_id::uuid[]) AS fresh (name, job_id)
WHERE schedule.name = fresh.name

-- name: note_runs (sqlite)
-- Record the last job of schedules. Uses the primary key.
UPDATE rowlock_schedule
SET last_at = {now}, last_job_id = :job_id
WHERE name = :name

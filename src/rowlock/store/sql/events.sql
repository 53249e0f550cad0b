-- name: event_write
-- Write events.
INSERT INTO rowlock.event (at, events)
VALUES ({now}, :events)

-- name: event_read
-- The events after a row, in order. Uses event_pkey.
SELECT event.id, event.at, event.events
FROM rowlock.event AS event
WHERE event.id > :after::bigint
ORDER BY event.id
LIMIT :limit

-- name: event_last
-- The current time, and the last row of events. Uses event_pkey.
SELECT {now}, coalesce((SELECT max(event.id) FROM rowlock.event AS event), 0)

-- name: event_prune
-- Remove events whose retention is over. Uses event_at.
DELETE FROM rowlock.event
WHERE at < (SELECT {now}) - :kept::bigint

-- name: log_after
-- The log lines of a job from a number on. Uses log_pkey.
SELECT log.line, log.at, log.text
FROM rowlock.log AS log
WHERE log.job_id = :id::uuid AND log.line >= :first::integer
ORDER BY log.line
LIMIT :limit

-- name: newest_jobs (postgres)
-- The newest jobs between two ids, live and ended. Uses job_pkey and finished_pkey.
SELECT newest.id::text, newest.queue, newest.kind, newest.tenant, newest.created_at
FROM (
    (
        SELECT job.id, job.queue, job.kind, job.tenant, job.created_at
        FROM rowlock.job AS job
        WHERE job.id > :low::uuid AND job.id < :high::uuid
        ORDER BY job.id DESC
        LIMIT :limit
    )
    UNION ALL
    (
        SELECT finished.id, finished.queue, finished.kind, finished.tenant, finished.created_at
        FROM rowlock.finished AS finished
        WHERE finished.id > :low::uuid AND finished.id < :high::uuid
        ORDER BY finished.id DESC
        LIMIT :limit
    )
) AS newest
ORDER BY newest.id

-- name: newest_jobs (sqlite)
-- The newest jobs between two ids, live and ended. Uses the primary keys.
SELECT newest.id, newest.queue, newest.kind, newest.tenant, newest.created_at
FROM (
    SELECT * FROM (
        SELECT job.id, job.queue, job.kind, job.tenant, job.created_at
        FROM rowlock_job AS job
        WHERE job.id > :low AND job.id < :high
        ORDER BY job.id DESC
        LIMIT :limit
    )
    UNION ALL
    SELECT * FROM (
        SELECT finished.id, finished.queue, finished.kind, finished.tenant, finished.created_at
        FROM rowlock_finished AS finished
        WHERE finished.id > :low AND finished.id < :high
        ORDER BY finished.id DESC
        LIMIT :limit
    )
) AS newest
ORDER BY newest.id

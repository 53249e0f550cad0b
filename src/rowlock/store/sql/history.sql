-- name: history_write (postgres)
-- Add a part to the sums of a slot. :at NULL is the slot that has just passed. Repeated after a
-- lost answer, it is still one part. Uses history_pkey.
INSERT INTO rowlock.history (part, at, width, queue, kind, sums)
SELECT part.part, coalesce(part.at, (clock.now - :back::bigint) / :slot::bigint * :slot::bigint),
    :width::integer, part.queue, part.kind, part.sums
FROM (SELECT {now} AS now) AS clock,
    unnest(:part::uuid[], :at::bigint[], :queue::text[], :kind::text[], :sums::text[])
        AS part (part, at, queue, kind, sums)
ON CONFLICT (part, queue, kind) DO NOTHING

-- name: history_write (sqlite)
-- Add a part to the sums of a slot. :at NULL is the slot that has just passed. Repeated after a
-- lost answer, it is still one part. Uses the primary key.
INSERT INTO rowlock_history (part, at, width, queue, kind, sums)
VALUES (
    :part, coalesce(:at, ({now} - :back) / :slot * :slot), :width, :queue, :kind, :sums
)
ON CONFLICT (part, queue, kind) DO NOTHING

-- name: history_read
-- Parts of the sums in a time range, newest first. Uses history_at.
SELECT history.at, history.queue, history.kind, history.sums
FROM rowlock.history AS history
WHERE history.at >= :since::bigint
    AND history.at < :until::bigint
    AND (:queue::text IS NULL OR history.queue = :queue::text)
    AND (:kind::text IS NULL OR history.kind = :kind::text)
ORDER BY history.at DESC
LIMIT :limit

-- name: history_ripe
-- Lock parts of shorter slots that are old enough to be folded, oldest first. Uses
-- history_width.
SELECT history.part::text, history.at, history.queue, history.kind, history.sums
FROM rowlock.history AS history
WHERE history.width < :width::integer
    AND history.at < ((SELECT {now}) - :age::bigint) / :slot::bigint * :slot::bigint
ORDER BY history.at
LIMIT :limit
FOR UPDATE OF history SKIP LOCKED

-- name: history_drop (postgres)
-- Remove parts of sums that were folded. Uses history_pkey.
DELETE FROM rowlock.history AS history
USING unnest(:part::uuid[], :queue::text[], :kind::text[]) AS gone (part, queue, kind)
WHERE history.part = gone.part AND history.queue = gone.queue AND history.kind = gone.kind

-- name: history_drop (sqlite)
-- Remove parts of sums that were folded. Uses the primary key.
DELETE FROM rowlock_history
WHERE part = :part AND queue = :queue AND kind = :kind

-- name: history_prune
-- Remove sums whose retention is over. Uses history_at.
DELETE FROM rowlock.history
WHERE at < (SELECT {now}) - :kept::bigint

-- name: count_new
-- Jobs whose ids were made in a time range, up to a cap, and the lowest of those ids. A job that
-- was deleted when it succeeded is still remembered. Uses the primary keys of three tables.
SELECT count(*), min(newest.id::text)
FROM (
    SELECT of_job.id FROM (
        SELECT job.id
        FROM rowlock.job AS job
        WHERE job.id >= :low::uuid AND job.id < :high::uuid
        ORDER BY job.id DESC
        LIMIT :cap
    ) AS of_job
    UNION
    SELECT of_finished.id FROM (
        SELECT finished.id
        FROM rowlock.finished AS finished
        WHERE finished.id >= :low::uuid AND finished.id < :high::uuid
        ORDER BY finished.id DESC
        LIMIT :cap
    ) AS of_finished
    UNION
    SELECT of_key_hold.holder FROM (
        SELECT key_hold.holder
        FROM rowlock.key_hold AS key_hold
        WHERE key_hold.holder >= :low::uuid AND key_hold.holder < :high::uuid
        ORDER BY key_hold.holder DESC
        LIMIT :cap
    ) AS of_key_hold
    ORDER BY 1 DESC
    LIMIT :cap
) AS newest

-- name: depth_last (postgres)
-- The current time, and whether this minute has a sample of the queues. Uses depth_pkey.
SELECT clock.now, EXISTS (
        SELECT 1 FROM rowlock.depth AS depth WHERE depth.at >= clock.now / 60000000 * 60000000
    )
FROM (SELECT {now} AS now) AS clock

-- name: depth_last (sqlite)
-- The current time, and whether this minute has a sample of the queues. Uses the primary key.
SELECT {now}, EXISTS (
        SELECT 1 FROM rowlock_depth AS depth WHERE depth.at >= {now} / 60000000 * 60000000
    )

-- name: depth_read
-- Samples of queues in a time range, newest first. Those of all queues together have no name. Uses
-- depth_pkey.
SELECT depth.at, depth.queue, depth.ready, depth.scheduled, depth.running, depth.retrying,
    depth.oldest_us
FROM rowlock.depth AS depth
WHERE depth.at >= :since::bigint
    AND depth.at < :until::bigint
    AND (:queue::text IS NULL OR depth.queue IN (:queue::text, ''))
ORDER BY depth.at DESC
LIMIT :limit

-- name: depth_write (postgres)
-- Store the depth of each queue. If several processes sample at once, one counts. Uses depth_pkey.
INSERT INTO rowlock.depth (at, queue, ready, scheduled, running, retrying, oldest_us)
SELECT :at::bigint, seen.queue, seen.ready, seen.scheduled, seen.running, seen.retrying,
    seen.oldest_us
FROM unnest(
        :queue::text[], :ready::bigint[], :scheduled::bigint[], :running::bigint[],
        :retrying::bigint[], :oldest_us::bigint[]
    ) AS seen (queue, ready, scheduled, running, retrying, oldest_us)
ON CONFLICT (at, queue) DO NOTHING

-- name: depth_write (sqlite)
-- Store the depth of each queue. If several processes sample at once, one counts. Uses the key.
INSERT INTO rowlock_depth (at, queue, ready, scheduled, running, retrying, oldest_us)
VALUES (:at, :queue, :ready, :scheduled, :running, :retrying, :oldest_us)
ON CONFLICT (at, queue) DO NOTHING

-- name: depth_prune
-- Remove samples of queues whose retention is over. Uses depth_pkey.
DELETE FROM rowlock.depth
WHERE at < (SELECT {now}) - :kept::bigint

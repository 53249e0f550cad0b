-- Parts of shorter slots that are old enough to be folded, the oldest first; locked. Uses
-- history_width.
SELECT history.part::text, history.at, history.queue, history.kind, history.sums
FROM rowlock.history AS history
WHERE history.width < :width::integer
    AND history.at < ((SELECT {now}) - :age::bigint) / :slot::bigint * :slot::bigint
ORDER BY history.at
LIMIT :limit
FOR UPDATE OF history SKIP LOCKED

-- Parts of shorter slots that are old enough to be folded, the oldest first. Uses
-- rowlock_history_width.
SELECT history.part, history.at, history.queue, history.kind, history.sums
FROM rowlock_history AS history
WHERE history.width < :width
    AND history.at < ({now} - :age) / :slot * :slot
ORDER BY history.at
LIMIT :limit

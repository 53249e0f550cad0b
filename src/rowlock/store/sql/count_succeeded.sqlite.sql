-- Succeeded jobs a queue among the newest rows, how many rows that were, and at most how many
-- there are. Walks the primary key from its end, up to a bound.
WITH newest AS MATERIALIZED (
    SELECT finished.queue, finished.state
    FROM rowlock_finished AS finished
    ORDER BY finished.id DESC
    LIMIT :scan
)
SELECT newest.queue, count(*) FILTER (WHERE newest.state = 'succeeded'),
    (SELECT count(*) FROM newest),
    -- Each by itself: with both in one query SQLite reads the whole table.
    (SELECT max(rowid) FROM rowlock_finished) - (SELECT min(rowid) FROM rowlock_finished) + 1
FROM newest
GROUP BY newest.queue

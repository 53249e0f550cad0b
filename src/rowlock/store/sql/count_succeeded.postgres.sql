-- Succeeded jobs a queue among the newest rows, how many rows that were, and how many there are
-- by the planner's estimate. Walks finished_pkey from its end, up to a bound.
WITH newest AS MATERIALIZED (
    SELECT finished.queue, finished.state
    FROM rowlock.finished AS finished
    ORDER BY finished.id DESC
    LIMIT :scan
)
SELECT newest.queue, count(*) FILTER (WHERE newest.state = 'succeeded'),
    (SELECT count(*) FROM newest),
    (SELECT reltuples::bigint FROM pg_class WHERE oid = 'rowlock.finished'::regclass)
FROM newest
GROUP BY newest.queue

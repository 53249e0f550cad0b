-- Succeeded jobs by queue among the newest rows, and how many rows were read.
-- Walks finished_pkey from its end, up to a bound.
WITH newest AS MATERIALIZED (
    SELECT finished.queue, finished.state
    FROM rowlock.finished AS finished
    ORDER BY finished.id DESC
    LIMIT :scan
)
SELECT newest.queue, count(*) FILTER (WHERE newest.state = 'succeeded'),
    (SELECT count(*) FROM newest)
FROM newest
GROUP BY newest.queue

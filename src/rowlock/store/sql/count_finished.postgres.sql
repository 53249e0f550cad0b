-- All finished jobs by queue and state. Reads the whole table: there is no index by queue for
-- succeeded jobs, so this is for once in a while.
SELECT finished.queue, finished.state, count(*)
FROM rowlock.finished AS finished
GROUP BY finished.queue, finished.state

-- How many jobs of a queue are finished, when the first began and the last ended. Reads them all.
SELECT count(*), min(started_at), max(finished_at)
FROM rowlock.finished
WHERE queue = :queue

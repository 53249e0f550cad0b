-- The queues that are paused.
SELECT queue.name
FROM rowlock.queue AS queue
WHERE queue.is_paused

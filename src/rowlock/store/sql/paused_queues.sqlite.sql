-- The queues that are paused.
SELECT queue.name
FROM rowlock_queue AS queue
WHERE queue.is_paused

-- Remove samples of queues whose time is over. Uses the primary key.
DELETE FROM rowlock_depth
WHERE at < {now} - :kept

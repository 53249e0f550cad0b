-- Remove samples of queues whose time is over. Uses depth_pkey.
DELETE FROM rowlock.depth
WHERE at < (SELECT {now}) - :kept::bigint

-- Remove events whose time is over. Uses event_at.
DELETE FROM rowlock.event
WHERE at < (SELECT {now}) - :kept::bigint

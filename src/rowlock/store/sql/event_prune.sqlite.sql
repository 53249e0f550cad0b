-- Remove events whose time is over. Uses rowlock_event_at.
DELETE FROM rowlock_event
WHERE at < {now} - :kept

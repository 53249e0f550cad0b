-- Remove sums whose time is over. Uses history_at.
DELETE FROM rowlock.history
WHERE at < (SELECT {now}) - :kept::bigint

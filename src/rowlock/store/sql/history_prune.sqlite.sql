-- Remove sums whose time is over. Uses rowlock_history_at.
DELETE FROM rowlock_history
WHERE at < {now} - :kept

-- At most how many live jobs there are; about right where they leave in the order they came.
SELECT coalesce(max(rowid) - min(rowid) + 1, 0)
FROM rowlock_job

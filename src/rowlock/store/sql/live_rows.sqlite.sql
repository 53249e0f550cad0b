-- At most how many live jobs there are; about right where they leave in the order they came.
-- Each by itself: with both in one query SQLite reads the whole table.
SELECT coalesce(
    (SELECT max(rowid) FROM rowlock_job) - (SELECT min(rowid) FROM rowlock_job) + 1, 0
)

-- The id of the database in which our names are found, read under the write lock.
-- The lock comes first, by an update of no row: a transaction that read before it wrote fails at
-- once when somebody else wrote in between, and its user's busy timeout would not help.
UPDATE rowlock_instance
SET id = id
WHERE 0;
SELECT instance.id
FROM rowlock_instance AS instance

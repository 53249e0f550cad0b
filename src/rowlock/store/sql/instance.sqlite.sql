-- The id of this database.
SELECT instance.id
FROM rowlock_instance AS instance

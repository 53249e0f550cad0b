-- The migrations that were applied.
SELECT migration.number, migration.checksum
FROM rowlock.migration AS migration

-- The migrations that a version would have to know to work on this schema, and does not.
SELECT migration.number
FROM rowlock_migration AS migration
WHERE migration.number > :known
    AND coalesce(migration.needs, migration.number) > :known

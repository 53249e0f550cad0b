-- name: clock
-- The current time of the database.
SELECT {now}

-- name: instance (postgres)
-- The id of this database. A copy made within the server has our row too, but another oid.
SELECT instance.id::text || '/' || here.oid::text
FROM rowlock.instance AS instance
    JOIN pg_catalog.pg_database AS here ON here.datname = pg_catalog.current_database()

-- name: instance (sqlite)
-- The id of this database.
SELECT instance.id
FROM rowlock_instance AS instance

-- name: secret
-- A key of this installation. Uses secret_pkey.
SELECT secret.value
FROM rowlock.secret AS secret
WHERE secret.name = :name

-- name: ring (postgres)
-- Notify listeners, once per queue. The commit does not wait for the disk: a notification that a
-- crash loses costs time, never a job, and this way a job starts one sync sooner.
WITH unhurried AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true) AS unhurried
)
SELECT pg_notify(:channel, rung.queue)
FROM unhurried, unnest(:queues::text[]) AS rung (queue)

-- name: applied (postgres)
-- The migrations that were applied.
SELECT migration.number, migration.checksum
FROM rowlock.migration AS migration

-- name: unfit_migrations
-- The migrations that this version would have to know to work on this schema, but does not.
SELECT migration.number
FROM rowlock.migration AS migration
WHERE migration.number > :known
    AND coalesce(migration.needs, migration.number) > :known

-- name: migration_table (postgres)
-- Whether this database was ever migrated.
SELECT to_regclass(:table) IS NOT NULL

-- name: attached (sqlite)
-- The files that a connection has open: (number, name, path). Reads nothing, takes no lock.
PRAGMA database_list

-- name: recognise (sqlite)
-- The id of the database in which our names are found, read under the write lock.
-- The lock comes first, by an update of no row: a transaction that read before it wrote fails at
-- once if another process wrote in between, and its user's busy timeout would not help.
UPDATE rowlock_instance
SET id = id
WHERE 0;
SELECT instance.id
FROM rowlock_instance AS instance

-- name: scratch_hold (postgres)
-- Give this transaction an id and a snapshot, so that nothing newer can be vacuumed.
SELECT pg_current_xact_id()::text, count(*)
FROM pg_catalog.pg_namespace

-- name: scratch_rights (postgres)
-- Whether this role may create a schema, its name, and the database's name.
SELECT has_database_privilege(current_database(), 'CREATE'), current_user, current_database()

-- name: scratch_schemas (postgres)
-- The schemas whose names begin with a prefix.
SELECT nspname::text
FROM pg_catalog.pg_namespace
WHERE starts_with(nspname, :prefix)
ORDER BY nspname

-- name: health_server (postgres)
-- The server's version, and its clock.
SELECT current_setting('server_version'), {now}

-- name: health_server (sqlite)
-- The library's version, and the clock.
SELECT sqlite_version(), {now}

-- name: health_size (postgres)
-- The size of our tables with their indexes, in bytes.
SELECT coalesce(sum(pg_catalog.pg_total_relation_size(class.oid)), 0)::bigint
FROM pg_catalog.pg_class AS class
    INNER JOIN pg_catalog.pg_class AS job
        ON job.oid = 'rowlock.job'::regclass AND job.relnamespace = class.relnamespace
WHERE class.relkind = 'r'

-- name: health_size (sqlite)
-- The size of the file in bytes, including data that is not ours.
SELECT pages.page_count * sizes.page_size
FROM pragma_page_count() AS pages, pragma_page_size() AS sizes

-- name: health_connections (postgres)
-- The number of connections, and how many are not reserved for superusers.
SELECT
    (
        SELECT count(*)
        FROM pg_catalog.pg_stat_activity AS activity
        WHERE activity.backend_type = 'client backend'
    ),
    current_setting('max_connections')::bigint
        - current_setting('superuser_reserved_connections')::bigint

-- name: health_oldest_transaction (postgres)
-- The owner of the server's oldest transaction, prepared ones included, without its statement.
SELECT held.pid, held.application, held.owner, held.database, held.state, held.seconds
FROM (
    SELECT
        activity.pid,
        activity.application_name AS application,
        coalesce(activity.usename, '')::text AS owner,
        coalesce(activity.datname, '')::text AS database,
        coalesce(activity.state, '') AS state,
        extract(epoch FROM clock_timestamp() - activity.xact_start)::float8 AS seconds
    FROM pg_catalog.pg_stat_activity AS activity
    WHERE activity.backend_type = 'client backend'
        AND activity.xact_start IS NOT NULL
        AND activity.pid <> pg_backend_pid()
    UNION ALL
    SELECT
        NULL, '', prepared.owner::text, prepared.database::text, 'prepared transaction',
        extract(epoch FROM clock_timestamp() - prepared.prepared)::float8
    FROM pg_catalog.pg_prepared_xacts AS prepared
) AS held
ORDER BY held.seconds DESC
LIMIT 1

-- name: health_dead_tuples (postgres)
-- How much vacuum has to do on the table of live jobs, and how long ago it last ran.
SELECT
    coalesce(stat.n_live_tup, 0),
    coalesce(stat.n_dead_tup, 0),
    extract(
        epoch FROM clock_timestamp() - greatest(stat.last_autovacuum, stat.last_vacuum)
    )::float8
FROM pg_catalog.pg_stat_all_tables AS stat
WHERE stat.relid = 'rowlock.job'::regclass

-- name: health_journal (sqlite)
-- The journal mode of the file.
SELECT journal_mode
FROM pragma_journal_mode

-- name: health_leases (postgres)
-- The number of expired leases, up to a cap, and when the oldest expired. Uses job_lease, and walks
-- the claims.
SELECT count(*), min(late.lease_expires_at), {now}
FROM (
    SELECT job.lease_expires_at
    FROM ({running job}) AS job
    WHERE job.lease_expires_at <= (SELECT {now})
    ORDER BY job.lease_expires_at
    LIMIT :cap
) AS late

-- name: health_leases (sqlite)
-- The number of expired leases, up to a cap, and when the oldest expired. Uses job_lease.
SELECT count(*), min(late.lease_expires_at), {now}
FROM (
    SELECT job.lease_expires_at
    FROM rowlock_job AS job
    WHERE job.lease_expires_at <= {now}
    ORDER BY job.lease_expires_at
    LIMIT :cap
) AS late

-- name: health_backend (postgres)
-- The process of the server that answers.
SELECT pg_backend_pid()

-- name: measure_durability (postgres)
-- Whether a commit waits for the disk.
SELECT current_setting('synchronous_commit') <> 'off' AND current_setting('fsync')::boolean

-- name: measure_finished
-- How many jobs of a queue have finished, when the first began and the last ended. Reads them all.
SELECT count(*), min(started_at), max(finished_at)
FROM rowlock.finished
WHERE queue = :queue

-- name: measure_patience (postgres)
-- Whether this transaction's commit waits for the disk. Unless lazily, the setting is unchanged.
SELECT set_config(
    'synchronous_commit',
    CASE WHEN :lazily THEN 'off' ELSE current_setting('synchronous_commit') END,
    true
)

-- name: measure_wal (postgres)
-- The end of the server's write-ahead log, in bytes.
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint

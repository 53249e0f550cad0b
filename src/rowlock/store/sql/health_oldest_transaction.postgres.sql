-- Who holds the oldest transaction of the server, prepared ones included; not what it says.
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

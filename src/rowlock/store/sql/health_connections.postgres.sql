-- How many connections there are, and how many are not reserved for superusers.
SELECT
    (
        SELECT count(*)
        FROM pg_catalog.pg_stat_activity AS activity
        WHERE activity.backend_type = 'client backend'
    ),
    current_setting('max_connections')::bigint
        - current_setting('superuser_reserved_connections')::bigint

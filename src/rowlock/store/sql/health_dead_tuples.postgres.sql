-- What vacuum has to do on the table of live jobs, and how long ago it last came.
SELECT
    coalesce(stat.n_live_tup, 0),
    coalesce(stat.n_dead_tup, 0),
    extract(
        epoch FROM clock_timestamp() - greatest(stat.last_autovacuum, stat.last_vacuum)
    )::float8
FROM pg_catalog.pg_stat_all_tables AS stat
WHERE stat.relid = 'rowlock.job'::regclass

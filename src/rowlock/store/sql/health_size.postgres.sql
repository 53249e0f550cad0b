-- How much room our tables take with their indexes, in bytes.
SELECT coalesce(sum(pg_catalog.pg_total_relation_size(class.oid)), 0)::bigint
FROM pg_catalog.pg_class AS class
    INNER JOIN pg_catalog.pg_class AS job
        ON job.oid = 'rowlock.job'::regclass AND job.relnamespace = class.relnamespace
WHERE class.relkind = 'r'

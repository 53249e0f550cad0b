-- About how many live jobs there are, as the planner reckons: rows a page, times pages now.
SELECT CASE
    WHEN class.relpages > 0
    THEN class.reltuples::float8 / class.relpages
        * (pg_relation_size(class.oid) / current_setting('block_size')::bigint)
    ELSE 0
END::bigint
FROM pg_class AS class
WHERE class.oid = 'rowlock.job'::regclass

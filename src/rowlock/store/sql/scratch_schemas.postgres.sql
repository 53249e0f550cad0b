-- The schemas whose names begin so.
SELECT nspname::text
FROM pg_catalog.pg_namespace
WHERE starts_with(nspname, :prefix)
ORDER BY nspname

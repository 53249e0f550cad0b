-- Give this transaction an id and a snapshot, so that nothing newer can be cleaned away.
SELECT pg_current_xact_id()::text, count(*)
FROM pg_catalog.pg_namespace

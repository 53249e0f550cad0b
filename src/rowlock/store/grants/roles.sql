-- Roles for the schema {schema}, to be granted to login roles. Safe to run again, and must be run
-- again after each migration: by a superuser, or, once the roles exist, by a migrator.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[
        '{schema}_migrator', '{schema}_worker', '{schema}_producer', '{schema}_reader'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
END $$;

-- The migrator owns the schema and everything in it.
DO $$
DECLARE
    owned text;
BEGIN
    IF EXISTS (
        SELECT FROM pg_catalog.pg_namespace
        WHERE nspname = '{schema}' AND pg_get_userbyid(nspowner) <> '{schema}_migrator'
    ) THEN
        ALTER SCHEMA {schema} OWNER TO {schema}_migrator;
    END IF;
    FOR owned IN
        SELECT tablename FROM pg_catalog.pg_tables
        WHERE schemaname = '{schema}' AND tableowner <> '{schema}_migrator'
    LOOP
        EXECUTE format('ALTER TABLE {schema}.%I OWNER TO {schema}_migrator', owned);
    END LOOP;
END $$;

REVOKE ALL ON ALL TABLES IN SCHEMA {schema}
FROM {schema}_worker, {schema}_producer, {schema}_reader;
GRANT USAGE ON SCHEMA {schema} TO {schema}_worker, {schema}_producer, {schema}_reader;

-- The worker, and the server, change every row. They only read migration, instance and secret.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}_worker;
-- A move continues the places of jobs that run in order.
GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {schema}_worker;
REVOKE INSERT, UPDATE, DELETE
ON {schema}.migration, {schema}.instance, {schema}.secret
FROM {schema}_worker;

-- The producer enqueues: it adds jobs, reads those that hold a key or an id, withdraws jobs that it
-- added in vain, and replaces the payloads and options of waiting jobs. It changes nothing else.
GRANT SELECT
ON {schema}.job, {schema}.finished, {schema}.key_hold, {schema}.migration, {schema}.instance
TO {schema}_producer;
GRANT INSERT, DELETE ON {schema}.job TO {schema}_producer;
-- For the places of jobs that run in order.
GRANT USAGE ON SEQUENCE {schema}.turn_number TO {schema}_producer;
GRANT UPDATE (
    run_at, queue, rank, key_hold, payload, max_attempts, tags, meta, policy, limit_name, limit_key,
    held_by, place
)
ON {schema}.job TO {schema}_producer;
-- It writes workflows, and has jobs that exist belong to them. It notes that a workflow has ended
-- whose key it needs.
GRANT SELECT, INSERT ON {schema}.workflow, {schema}.edge, {schema}.stack TO {schema}_producer;
GRANT SELECT ON {schema}.job_limit TO {schema}_producer;
GRANT UPDATE (ended_at) ON {schema}.workflow TO {schema}_producer;
GRANT UPDATE (is_met) ON {schema}.edge TO {schema}_producer;
GRANT UPDATE (workflow, stack, watched, indexed_lease, pending, inputs)
ON {schema}.job TO {schema}_producer;
GRANT UPDATE (workflow, stack, watched, expires_at) ON {schema}.finished TO {schema}_producer;

-- The reader reads everything except sessions, the digests of tokens, and what is the server's own.
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}_reader;
REVOKE SELECT ON {schema}.token, {schema}.session, {schema}.first_answer, {schema}.secret
FROM {schema}_reader;
GRANT SELECT (id, created_at, expires_at, revoked_at, last_used_at, name, scopes, tenant)
ON {schema}.token TO {schema}_reader;

-- Row-level security for producers and readers: they see and add rows of the tenant named by the
-- setting rowlock.tenant; without it, rows of no tenant. Workers see all. Safe to run again.
DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY[
        'job', 'finished', 'key_hold', 'schedule', 'token', 'audit', 'bulk', 'log', 'claim',
        'limit_key', 'workflow', 'edge', 'stack'
    ] LOOP
        EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('DROP POLICY IF EXISTS every_tenant ON {schema}.%I', guarded);
        EXECUTE format('CREATE POLICY every_tenant ON {schema}.%I TO {schema}_worker '
            'USING (true) WITH CHECK (true)', guarded);
        EXECUTE format('DROP POLICY IF EXISTS own_tenant ON {schema}.%I', guarded);
        CONTINUE WHEN guarded IN ('log', 'claim', 'limit_key', 'edge', 'stack');
        EXECUTE format('CREATE POLICY own_tenant ON {schema}.%I '
            'TO {schema}_producer, {schema}_reader '
            'USING (tenant IS NOT DISTINCT FROM '
            'nullif(current_setting(''rowlock.tenant'', true), ''''))', guarded);
    END LOOP;
END $$;

-- A log line is visible if its job is.
CREATE POLICY own_tenant ON {schema}.log TO {schema}_reader
USING (
    EXISTS (SELECT FROM {schema}.job AS job WHERE job.id = log.job_id)
    OR EXISTS (SELECT FROM {schema}.finished AS finished WHERE finished.id = log.job_id)
);

-- The note of a claim is visible if one of its jobs is.
CREATE POLICY own_tenant ON {schema}.claim TO {schema}_reader
USING (
    EXISTS (
        SELECT
        FROM {schema}.job AS job
        WHERE job.queue = claim.queue AND job.rank = claim.rank AND job.kind = claim.kind
            AND (job.run_at, job.id) >= (claim.first_at, claim.first_id)
            AND (job.run_at, job.id) <= (claim.last_at, claim.last_id)
            AND job.worker = claim.worker
    )
);

-- Who waits for whom is visible, and can be written, if one of the jobs is visible.
CREATE POLICY own_tenant ON {schema}.edge TO {schema}_producer, {schema}_reader
USING (
    EXISTS (SELECT FROM {schema}.job AS job WHERE job.id = edge.child)
    OR EXISTS (SELECT FROM {schema}.finished AS finished WHERE finished.id = edge.child)
);

-- The shape of a workflow is visible if the workflow is.
CREATE POLICY own_tenant ON {schema}.stack TO {schema}_producer, {schema}_reader
USING (EXISTS (SELECT FROM {schema}.workflow AS workflow WHERE workflow.id = stack.workflow));

-- A key may name anybody. That of a reader's own tenant is visible.
CREATE POLICY own_tenant ON {schema}.limit_key TO {schema}_reader
USING (key = coalesce(current_setting('rowlock.tenant', true), ''));

-- A row of events has those of all tenants, and the history belongs to no tenant.
REVOKE SELECT ON {schema}.event, {schema}.history, {schema}.depth FROM {schema}_reader;

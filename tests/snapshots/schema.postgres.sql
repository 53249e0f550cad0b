TABLE audit (
    id uuid NOT NULL
    at bigint NOT NULL
    token_id text COLLATE "C"
    actor text NOT NULL
    tenant text COLLATE "C"
    action text NOT NULL
    target text COLLATE "C" NOT NULL
    address text
    detail text
);

TABLE bulk (
    id uuid NOT NULL
    created_at bigint NOT NULL
    updated_at bigint NOT NULL
    finished_at bigint
    total bigint NOT NULL
    done bigint NOT NULL DEFAULT 0
    skipped bigint NOT NULL DEFAULT 0
    is_exact boolean NOT NULL
    actor text NOT NULL
    tenant text COLLATE "C"
    action text NOT NULL
    chosen text NOT NULL
    place text NOT NULL
    skipped_ids text NOT NULL
    problem text
);

TABLE claim WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=500, autovacuum_vacuum_cost_delay=0) (
    id uuid NOT NULL
    until bigint NOT NULL
    first_at bigint NOT NULL
    first_id uuid NOT NULL
    last_at bigint NOT NULL
    last_id uuid NOT NULL
    rank smallint NOT NULL
    queue text COLLATE "C" NOT NULL
    kind text COLLATE "C" NOT NULL
    worker text COLLATE "C" NOT NULL
);

TABLE depth (
    at bigint NOT NULL
    queue text COLLATE "C" NOT NULL
    ready bigint NOT NULL
    scheduled bigint NOT NULL
    running bigint NOT NULL
    retrying bigint NOT NULL
    oldest_us bigint
);

TABLE edge (
    parent uuid NOT NULL
    child uuid NOT NULL
    wants smallint NOT NULL
    is_met boolean NOT NULL DEFAULT false
);

TABLE event (
    id bigint NOT NULL DEFAULT nextval('rowlock.event_number'::regclass)
    at bigint NOT NULL
    events text NOT NULL
);

TABLE finished (
    id uuid NOT NULL
    run_at bigint NOT NULL
    created_at bigint NOT NULL
    started_at bigint
    finished_at bigint NOT NULL
    expires_at bigint
    token bigint NOT NULL
    key_hold bigint
    attempt integer NOT NULL
    max_attempts integer
    crashes integer NOT NULL
    log_lines integer NOT NULL
    rank smallint NOT NULL
    cancel_requested boolean NOT NULL
    lease_taken boolean NOT NULL
    state text NOT NULL
    kind text COLLATE "C" NOT NULL
    queue text COLLATE "C" NOT NULL
    tenant text COLLATE "C"
    key text COLLATE "C"
    limit_name text COLLATE "C"
    limit_key text COLLATE "C"
    workflow uuid
    stack bigint
    watched boolean
    place bigint
    worker text COLLATE "C"
    payload text NOT NULL
    policy text
    tags text
    meta text
    progress text
    errors text
    result text
    fingerprint text COLLATE "C"
    cause smallint
    inputs text
);

TABLE first_answer (
    id text COLLATE "C" NOT NULL
    at bigint NOT NULL
    request text NOT NULL
    answer text NOT NULL
);

TABLE history (
    part uuid NOT NULL
    at bigint NOT NULL
    width integer NOT NULL
    queue text COLLATE "C" NOT NULL
    kind text COLLATE "C" NOT NULL
    sums text NOT NULL
);

TABLE instance (
    id uuid NOT NULL
);

TABLE job WITH (fillfactor=42, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_cost_delay=0) (
    id uuid NOT NULL
    run_at bigint NOT NULL
    created_at bigint NOT NULL
    key_hold bigint
    indexed_lease bigint
    max_attempts integer
    crashes integer NOT NULL DEFAULT 0
    log_lines integer NOT NULL DEFAULT 0
    rank smallint NOT NULL
    held_by smallint
    losses smallint NOT NULL DEFAULT 0
    token bigint NOT NULL DEFAULT 0
    started_at bigint
    lease_expires_at bigint
    beat_at bigint
    attempt integer NOT NULL DEFAULT 0
    interruptions smallint NOT NULL DEFAULT 0
    quarantined boolean NOT NULL DEFAULT false
    begun boolean NOT NULL DEFAULT false
    cancel_requested boolean NOT NULL DEFAULT false
    lease_taken boolean NOT NULL DEFAULT false
    is_retry boolean NOT NULL DEFAULT false
    worker text COLLATE "C"
    kind text COLLATE "C" NOT NULL
    queue text COLLATE "C" NOT NULL
    tenant text COLLATE "C"
    key text COLLATE "C"
    limit_name text COLLATE "C"
    limit_key text COLLATE "C"
    workflow uuid
    stack bigint
    pending integer
    watched boolean
    place bigint
    turn bigint
    payload text NOT NULL
    policy text
    tags text
    meta text
    progress text
    errors text
    inputs text
);

TABLE job_limit (
    name text COLLATE "C" NOT NULL
    declared_at bigint NOT NULL
    concurrency integer
    interval_us bigint
    burst integer
    key_concurrency integer
    key_interval_us bigint
    key_burst integer
    is_ordered boolean NOT NULL
    pauses_when_dead boolean NOT NULL
    tat bigint NOT NULL DEFAULT 0
    closed_until bigint
    closed_by text
    weights text
    declared text NOT NULL
    chosen text
);

TABLE key_hold (
    holder uuid NOT NULL
    until bigint NOT NULL
    key_until bigint
    token bigint NOT NULL
    lease_taken boolean NOT NULL
    state text NOT NULL
    kind text COLLATE "C" NOT NULL
    queue text COLLATE "C" NOT NULL
    tenant text COLLATE "C"
    key text COLLATE "C"
);

TABLE limit_key WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_threshold=500, autovacuum_vacuum_cost_delay=0) (
    limit_name text COLLATE "C" NOT NULL
    key text COLLATE "C" NOT NULL
    tat bigint NOT NULL DEFAULT 0
    closed_until bigint
    concurrency integer
    interval_us bigint
    burst integer
    weight integer
    closed_by text
);

TABLE log (
    job_id uuid NOT NULL
    line integer NOT NULL
    at bigint NOT NULL
    text text NOT NULL
);

TABLE migration (
    number integer NOT NULL
    name text NOT NULL
    checksum text NOT NULL
    needs integer
);

TABLE queue (
    name text COLLATE "C" NOT NULL
    is_paused boolean NOT NULL DEFAULT false
    by_age boolean NOT NULL DEFAULT false
);

TABLE schedule (
    name text COLLATE "C" NOT NULL
    next_at bigint NOT NULL
    last_at bigint
    last_job_id uuid
    key_hold bigint
    max_attempts integer
    rank smallint NOT NULL
    is_paused boolean NOT NULL DEFAULT false
    source text NOT NULL
    missed text NOT NULL
    cron text NOT NULL
    timezone text NOT NULL
    kind text COLLATE "C" NOT NULL
    queue text COLLATE "C" NOT NULL
    tenant text COLLATE "C"
    key text COLLATE "C"
    payload text NOT NULL
    policy text
    tags text
    meta text
);

TABLE secret (
    name text COLLATE "C" NOT NULL
    value text NOT NULL
);

TABLE session (
    digest text COLLATE "C" NOT NULL
    created_at bigint NOT NULL
    expires_at bigint NOT NULL
    token_id text COLLATE "C" NOT NULL
);

TABLE stack (
    workflow uuid NOT NULL
    stack bigint NOT NULL
    parent bigint NOT NULL
    wants smallint NOT NULL
    kind text COLLATE "C" NOT NULL
);

TABLE token (
    id text COLLATE "C" NOT NULL
    created_at bigint NOT NULL
    expires_at bigint
    revoked_at bigint
    last_used_at bigint
    digest text
    name text NOT NULL
    scopes text NOT NULL
    tenant text COLLATE "C"
);

TABLE worker (
    id text COLLATE "C" NOT NULL
    started_at bigint NOT NULL
    beat_at bigint NOT NULL
    pid integer NOT NULL
    host text NOT NULL
    queues text NOT NULL
    kinds text NOT NULL
    vitals text
);

TABLE workflow (
    id uuid NOT NULL
    created_at bigint NOT NULL
    ended_at bigint
    deadline bigint
    cancelled_at bigint
    parent uuid
    name text COLLATE "C" NOT NULL
    key text COLLATE "C"
    tenant text COLLATE "C"
    meta text
);

CREATE INDEX audit_expiry ON rowlock.audit USING btree (at);
CREATE UNIQUE INDEX audit_pkey ON rowlock.audit USING btree (id);
CREATE INDEX audit_target ON rowlock.audit USING btree (target, id);
CREATE INDEX audit_tenant ON rowlock.audit USING btree (tenant, id) WHERE (tenant IS NOT NULL);
CREATE UNIQUE INDEX bulk_pkey ON rowlock.bulk USING btree (id);
CREATE INDEX bulk_running ON rowlock.bulk USING btree (id) WHERE (finished_at IS NULL);
CREATE UNIQUE INDEX claim_pkey ON rowlock.claim USING btree (id);
CREATE INDEX claim_until ON rowlock.claim USING btree (until);
CREATE UNIQUE INDEX depth_pkey ON rowlock.depth USING btree (at, queue);
CREATE INDEX edge_child ON rowlock.edge USING btree (child);
CREATE UNIQUE INDEX edge_pkey ON rowlock.edge USING btree (parent, child);
CREATE INDEX event_at ON rowlock.event USING btree (at);
CREATE UNIQUE INDEX event_pkey ON rowlock.event USING btree (id);
CREATE INDEX finished_dead ON rowlock.finished USING btree (finished_at, id) WHERE (state = 'dead'::text);
CREATE INDEX finished_expiry ON rowlock.finished USING btree (expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX finished_fingerprint ON rowlock.finished USING btree (fingerprint, finished_at, id) WHERE ((state = 'dead'::text) AND (fingerprint IS NOT NULL));
CREATE INDEX finished_key ON rowlock.finished USING btree (COALESCE(tenant, ''::text), kind, key) WHERE (key_hold = '-1'::integer);
CREATE UNIQUE INDEX finished_pkey ON rowlock.finished USING btree (id);
CREATE INDEX finished_queue ON rowlock.finished USING btree (queue, state, finished_at, id) WHERE (state <> 'succeeded'::text);
CREATE INDEX finished_workflow ON rowlock.finished USING btree (workflow, state, stack, id) WHERE (workflow IS NOT NULL);
CREATE INDEX first_answer_expiry ON rowlock.first_answer USING btree (at);
CREATE UNIQUE INDEX first_answer_pkey ON rowlock.first_answer USING btree (id);
CREATE INDEX history_at ON rowlock.history USING btree (at);
CREATE UNIQUE INDEX history_pkey ON rowlock.history USING btree (part, queue, kind);
CREATE INDEX history_width ON rowlock.history USING btree (width, at);
CREATE UNIQUE INDEX instance_pkey ON rowlock.instance USING btree (id);
CREATE UNIQUE INDEX job_key ON rowlock.job USING btree (COALESCE(tenant, ''::text), kind, key, ( CASE WHEN ((key_hold = '-2'::integer) AND (indexed_lease < '253000000000000000'::bigint)) THEN id ELSE '00000000-0000-0000-0000-000000000000'::uuid END)) WHERE (key IS NOT NULL);
CREATE INDEX job_lane ON rowlock.job USING btree (queue, rank, kind, run_at, id) WHERE ((indexed_lease IS NULL) AND (held_by IS NULL));
CREATE INDEX job_lease ON rowlock.job USING btree (indexed_lease) WHERE (indexed_lease IS NOT NULL);
CREATE UNIQUE INDEX job_limit_pkey ON rowlock.job_limit USING btree (name);
CREATE INDEX job_order ON rowlock.job USING btree (limit_name, limit_key, place, id) WHERE (place IS NOT NULL);
CREATE INDEX job_outside ON rowlock.job USING btree (queue, run_at, id) WHERE ((indexed_lease IS NULL) AND (held_by = 2));
CREATE UNIQUE INDEX job_pkey ON rowlock.job USING btree (id);
CREATE INDEX job_retried ON rowlock.job USING btree (queue, run_at) WHERE ((indexed_lease IS NULL) AND is_retry AND (run_at > created_at));
CREATE INDEX job_room ON rowlock.job USING btree (queue, hashtextextended(textcat(textcat(kind, '/'::text), limit_name), (rank)::bigint), limit_key, run_at, id) WHERE ((indexed_lease IS NULL) AND (held_by = 1));
CREATE INDEX job_tenant_held ON rowlock.job USING btree (tenant, queue, run_at) WHERE ((indexed_lease IS NULL) AND (held_by IS NOT NULL) AND (tenant IS NOT NULL));
CREATE INDEX job_tenant_lane ON rowlock.job USING btree (tenant, queue, rank, kind, run_at, id) WHERE ((indexed_lease IS NULL) AND (held_by IS NULL) AND (tenant IS NOT NULL));
CREATE INDEX job_turn ON rowlock.job USING btree (limit_name, limit_key, turn) WHERE ((indexed_lease IS NOT NULL) AND (limit_name IS NOT NULL));
CREATE INDEX job_waiting ON rowlock.job USING btree (queue) WHERE (held_by = 3);
CREATE INDEX job_workflow ON rowlock.job USING btree (workflow, held_by, stack, id) WHERE (workflow IS NOT NULL);
CREATE INDEX key_hold_expiry ON rowlock.key_hold USING btree (until);
CREATE INDEX key_hold_key ON rowlock.key_hold USING btree (COALESCE(tenant, ''::text), kind, key) WHERE (key_until IS NOT NULL);
CREATE UNIQUE INDEX key_hold_pkey ON rowlock.key_hold USING btree (holder);
CREATE INDEX limit_key_chosen ON rowlock.limit_key USING btree (limit_name, key) WHERE (COALESCE(closed_until, (concurrency)::bigint, interval_us, (weight)::bigint) IS NOT NULL);
CREATE UNIQUE INDEX limit_key_pkey ON rowlock.limit_key USING btree (limit_name, key);
CREATE UNIQUE INDEX log_pkey ON rowlock.log USING btree (job_id, line);
CREATE UNIQUE INDEX migration_pkey ON rowlock.migration USING btree (number);
CREATE UNIQUE INDEX queue_pkey ON rowlock.queue USING btree (name);
CREATE INDEX schedule_due ON rowlock.schedule USING btree (next_at, name) WHERE (NOT is_paused);
CREATE UNIQUE INDEX schedule_pkey ON rowlock.schedule USING btree (name);
CREATE UNIQUE INDEX secret_pkey ON rowlock.secret USING btree (name);
CREATE INDEX session_expiry ON rowlock.session USING btree (expires_at);
CREATE UNIQUE INDEX session_pkey ON rowlock.session USING btree (digest);
CREATE INDEX session_token ON rowlock.session USING btree (token_id, created_at);
CREATE UNIQUE INDEX stack_pkey ON rowlock.stack USING btree (workflow, stack, parent);
CREATE INDEX token_login ON rowlock.token USING btree (expires_at) WHERE (digest IS NULL);
CREATE UNIQUE INDEX token_pkey ON rowlock.token USING btree (id);
CREATE UNIQUE INDEX worker_pkey ON rowlock.worker USING btree (id);
CREATE INDEX workflow_ended ON rowlock.workflow USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE UNIQUE INDEX workflow_key ON rowlock.workflow USING btree (COALESCE(tenant, ''::text), name, key) WHERE ((key IS NOT NULL) AND (ended_at IS NULL));
CREATE INDEX workflow_open ON rowlock.workflow USING btree (id) WHERE (ended_at IS NULL);
CREATE UNIQUE INDEX workflow_pkey ON rowlock.workflow USING btree (id);

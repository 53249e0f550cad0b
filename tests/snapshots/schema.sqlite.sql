TABLE rowlock_audit (
    id text NOT NULL PRIMARY KEY 1
    at integer NOT NULL
    token_id text
    actor text NOT NULL
    tenant text
    action text NOT NULL
    target text NOT NULL
    address text
    detail text
);

TABLE rowlock_bulk (
    id text NOT NULL PRIMARY KEY 1
    created_at integer NOT NULL
    updated_at integer NOT NULL
    finished_at integer
    total integer NOT NULL
    done integer NOT NULL DEFAULT 0
    skipped integer NOT NULL DEFAULT 0
    is_exact integer NOT NULL
    actor text NOT NULL
    tenant text
    action text NOT NULL
    chosen text NOT NULL
    place text NOT NULL
    skipped_ids text NOT NULL
    problem text
);

TABLE rowlock_depth (
    at integer NOT NULL PRIMARY KEY 1
    queue text NOT NULL PRIMARY KEY 2
    ready integer NOT NULL
    scheduled integer NOT NULL
    running integer NOT NULL
    retrying integer NOT NULL
    oldest_us integer
);

TABLE rowlock_edge (
    parent text NOT NULL PRIMARY KEY 1
    child text NOT NULL PRIMARY KEY 2
    wants integer NOT NULL
    is_met integer NOT NULL DEFAULT 0
);

TABLE rowlock_event (
    id integer PRIMARY KEY 1
    at integer NOT NULL
    events text NOT NULL
);

TABLE rowlock_finished (
    id text NOT NULL PRIMARY KEY 1
    run_at integer NOT NULL
    created_at integer NOT NULL
    started_at integer
    finished_at integer NOT NULL
    expires_at integer
    token integer NOT NULL
    key_hold integer
    attempt integer NOT NULL
    max_attempts integer
    crashes integer NOT NULL
    log_lines integer NOT NULL
    rank integer NOT NULL
    cancel_requested integer NOT NULL
    lease_taken integer NOT NULL
    state text NOT NULL
    kind text NOT NULL
    queue text NOT NULL
    tenant text
    key text
    limit_name text
    limit_key text
    workflow text
    stack integer
    watched integer
    place integer
    worker text
    payload text NOT NULL
    policy text
    tags text
    meta text
    progress text
    errors text
    result text
    fingerprint text
    cause integer
    inputs text
);

TABLE rowlock_first_answer (
    id text NOT NULL PRIMARY KEY 1
    at integer NOT NULL
    request text NOT NULL
    answer text NOT NULL
);

TABLE rowlock_history (
    part text NOT NULL PRIMARY KEY 1
    at integer NOT NULL
    width integer NOT NULL
    queue text NOT NULL PRIMARY KEY 2
    kind text NOT NULL PRIMARY KEY 3
    sums text NOT NULL
);

TABLE rowlock_instance (
    id text NOT NULL PRIMARY KEY 1
);

TABLE rowlock_job (
    id text NOT NULL PRIMARY KEY 1
    run_at integer NOT NULL
    created_at integer NOT NULL
    key_hold integer
    max_attempts integer
    crashes integer NOT NULL DEFAULT 0
    log_lines integer NOT NULL DEFAULT 0
    rank integer NOT NULL
    held_by integer
    losses integer NOT NULL DEFAULT 0
    token integer NOT NULL DEFAULT 0
    started_at integer
    lease_expires_at integer
    beat_at integer
    attempt integer NOT NULL DEFAULT 0
    interruptions integer NOT NULL DEFAULT 0
    quarantined integer NOT NULL DEFAULT 0
    begun integer NOT NULL DEFAULT 0
    cancel_requested integer NOT NULL DEFAULT 0
    lease_taken integer NOT NULL DEFAULT 0
    worker text
    kind text NOT NULL
    queue text NOT NULL
    tenant text
    key text
    limit_name text
    limit_key text
    workflow text
    stack integer
    pending integer
    watched integer
    place integer
    payload text NOT NULL
    policy text
    tags text
    meta text
    progress text
    errors text
    inputs text
);

TABLE rowlock_job_limit (
    name text NOT NULL PRIMARY KEY 1
    declared_at integer NOT NULL
    concurrency integer
    interval_us integer
    burst integer
    key_concurrency integer
    key_interval_us integer
    key_burst integer
    is_ordered integer NOT NULL
    pauses_when_dead integer NOT NULL
    tat integer NOT NULL DEFAULT 0
    closed_until integer
    closed_by text
    weights text
    declared text NOT NULL
    chosen text
);

TABLE rowlock_key_hold (
    holder text NOT NULL PRIMARY KEY 1
    until integer NOT NULL
    key_until integer
    token integer NOT NULL
    lease_taken integer NOT NULL
    state text NOT NULL
    kind text NOT NULL
    queue text NOT NULL
    tenant text
    key text
);

TABLE rowlock_limit_key (
    limit_name text NOT NULL PRIMARY KEY 1
    key text NOT NULL PRIMARY KEY 2
    tat integer NOT NULL DEFAULT 0
    closed_until integer
    concurrency integer
    interval_us integer
    burst integer
    weight integer
    closed_by text
);

TABLE rowlock_log (
    job_id text NOT NULL PRIMARY KEY 1
    line integer NOT NULL PRIMARY KEY 2
    at integer NOT NULL
    text text NOT NULL
);

TABLE rowlock_migration (
    number integer NOT NULL PRIMARY KEY 1
    name text NOT NULL
    checksum text NOT NULL
    needs integer
);

TABLE rowlock_queue (
    name text NOT NULL PRIMARY KEY 1
    is_paused integer NOT NULL DEFAULT 0
    by_age integer NOT NULL DEFAULT 0
);

TABLE rowlock_schedule (
    name text NOT NULL PRIMARY KEY 1
    next_at integer NOT NULL
    last_at integer
    last_job_id text
    key_hold integer
    max_attempts integer
    rank integer NOT NULL
    is_paused integer NOT NULL DEFAULT 0
    source text NOT NULL
    missed text NOT NULL
    cron text NOT NULL
    timezone text NOT NULL
    kind text NOT NULL
    queue text NOT NULL
    tenant text
    key text
    payload text NOT NULL
    policy text
    tags text
    meta text
);

TABLE rowlock_secret (
    name text NOT NULL PRIMARY KEY 1
    value text NOT NULL
);

TABLE rowlock_session (
    digest text NOT NULL PRIMARY KEY 1
    created_at integer NOT NULL
    expires_at integer NOT NULL
    token_id text NOT NULL
);

TABLE rowlock_stack (
    workflow text NOT NULL PRIMARY KEY 1
    stack integer NOT NULL PRIMARY KEY 2
    parent integer NOT NULL PRIMARY KEY 3
    wants integer NOT NULL
    kind text NOT NULL
);

TABLE rowlock_token (
    id text NOT NULL PRIMARY KEY 1
    created_at integer NOT NULL
    expires_at integer
    revoked_at integer
    last_used_at integer
    digest text
    name text NOT NULL
    scopes text NOT NULL
    tenant text
);

TABLE rowlock_worker (
    id text NOT NULL PRIMARY KEY 1
    started_at integer NOT NULL
    beat_at integer NOT NULL
    pid integer NOT NULL
    host text NOT NULL
    queues text NOT NULL
    kinds text NOT NULL
    vitals text
);

TABLE rowlock_workflow (
    id text NOT NULL PRIMARY KEY 1
    created_at integer NOT NULL
    ended_at integer
    deadline integer
    cancelled_at integer
    parent text
    name text NOT NULL
    key text
    tenant text
    meta text
);

CREATE INDEX rowlock_audit_expiry ON rowlock_audit (at);
CREATE INDEX rowlock_audit_target ON rowlock_audit (target, id);
CREATE INDEX rowlock_audit_tenant ON rowlock_audit (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX rowlock_bulk_running ON rowlock_bulk (id) WHERE finished_at IS NULL;
CREATE INDEX rowlock_edge_child ON rowlock_edge (child);
CREATE INDEX rowlock_event_at ON rowlock_event (at);
CREATE INDEX rowlock_finished_dead ON rowlock_finished (finished_at, id) WHERE state = 'dead';
CREATE INDEX rowlock_finished_expiry ON rowlock_finished (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX rowlock_finished_fingerprint ON rowlock_finished (fingerprint, finished_at, id) WHERE state = 'dead' AND fingerprint IS NOT NULL;
CREATE INDEX rowlock_finished_key ON rowlock_finished (coalesce(tenant, ''), kind, key) WHERE key_hold = -1;
CREATE INDEX rowlock_finished_queue ON rowlock_finished (queue, state, finished_at, id) WHERE state <> 'succeeded';
CREATE INDEX rowlock_finished_workflow ON rowlock_finished (workflow, state, stack, id) WHERE workflow IS NOT NULL;
CREATE INDEX rowlock_first_answer_expiry ON rowlock_first_answer (at);
CREATE INDEX rowlock_history_at ON rowlock_history (at);
CREATE INDEX rowlock_history_width ON rowlock_history (width, at);
CREATE UNIQUE INDEX rowlock_job_key ON rowlock_job ( coalesce(tenant, ''), kind, key, (CASE WHEN key_hold = -2 AND lease_expires_at < 253000000000000000 THEN id ELSE '' END) ) WHERE key IS NOT NULL;
CREATE INDEX rowlock_job_lane ON rowlock_job (queue, rank, kind, run_at, id) WHERE lease_expires_at IS NULL AND held_by IS NULL;
CREATE INDEX rowlock_job_lease ON rowlock_job (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX rowlock_job_order ON rowlock_job (limit_name, limit_key, place, id) WHERE place IS NOT NULL;
CREATE INDEX rowlock_job_outside ON rowlock_job (queue, run_at, id) WHERE lease_expires_at IS NULL AND held_by = 2;
CREATE INDEX rowlock_job_retried ON rowlock_job (queue, run_at) WHERE lease_expires_at IS NULL AND attempt > 0 AND run_at > created_at;
CREATE INDEX rowlock_job_room ON rowlock_job ( queue, rank, kind, limit_name, limit_key, run_at, id ) WHERE lease_expires_at IS NULL AND held_by = 1;
CREATE INDEX rowlock_job_tenant_held ON rowlock_job (tenant, queue, run_at) WHERE lease_expires_at IS NULL AND held_by IS NOT NULL AND tenant IS NOT NULL;
CREATE INDEX rowlock_job_tenant_lane ON rowlock_job (tenant, queue, rank, kind, run_at, id) WHERE lease_expires_at IS NULL AND held_by IS NULL AND tenant IS NOT NULL;
CREATE INDEX rowlock_job_turn ON rowlock_job (limit_name, limit_key) WHERE lease_expires_at IS NOT NULL AND limit_name IS NOT NULL;
CREATE INDEX rowlock_job_waiting ON rowlock_job (queue) WHERE held_by = 3;
CREATE INDEX rowlock_job_workflow ON rowlock_job (workflow, held_by, stack, id) WHERE workflow IS NOT NULL;
CREATE INDEX rowlock_key_hold_expiry ON rowlock_key_hold (until);
CREATE INDEX rowlock_key_hold_key ON rowlock_key_hold (coalesce(tenant, ''), kind, key) WHERE key_until IS NOT NULL;
CREATE INDEX rowlock_limit_key_chosen ON rowlock_limit_key (limit_name, key) WHERE coalesce(closed_until, concurrency, interval_us, weight) IS NOT NULL;
CREATE INDEX rowlock_schedule_due ON rowlock_schedule (next_at, name) WHERE NOT is_paused;
CREATE INDEX rowlock_session_expiry ON rowlock_session (expires_at);
CREATE INDEX rowlock_session_token ON rowlock_session (token_id, created_at);
CREATE INDEX rowlock_token_login ON rowlock_token (expires_at) WHERE digest IS NULL;
CREATE INDEX rowlock_workflow_ended ON rowlock_workflow (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX rowlock_workflow_key ON rowlock_workflow (coalesce(tenant, ''), name, key) WHERE key IS NOT NULL AND ended_at IS NULL;
CREATE INDEX rowlock_workflow_open ON rowlock_workflow (id) WHERE ended_at IS NULL;

-- Jobs, live and finished, and what belongs to them.
-- Times and durations are microseconds; rank is the negated priority, so that every index ascends.

CREATE TABLE rowlock_job (
    id text NOT NULL PRIMARY KEY,
    run_at integer NOT NULL,
    created_at integer NOT NULL,
    key_hold integer,
    max_attempts integer,
    crashes integer NOT NULL DEFAULT 0,
    log_lines integer NOT NULL DEFAULT 0,
    rank integer NOT NULL,
    -- Why the job is not in its lane, though nobody may run it: 1 it waits at its limit, 2 it has a
    -- limit and is not due, 3 it waits for other jobs. NULL: it is in its lane. A run leaves it as
    -- it is.
    held_by integer,
    -- Of a run that nobody has settled. `begun`: a committed write says that its handler was
    -- called, or was about to be. `losses`: leases lost in a row. `interruptions`: runs that left
    -- a trace but were not counted as attempts. `quarantined`: its process died, and no run has
    -- ended by itself since, so that it runs alone next.
    losses integer NOT NULL DEFAULT 0,
    token integer NOT NULL DEFAULT 0,
    started_at integer,
    lease_expires_at integer,
    beat_at integer,
    attempt integer NOT NULL DEFAULT 0,
    interruptions integer NOT NULL DEFAULT 0,
    quarantined integer NOT NULL DEFAULT 0,
    begun integer NOT NULL DEFAULT 0,
    cancel_requested integer NOT NULL DEFAULT 0,
    lease_taken integer NOT NULL DEFAULT 0,
    worker text,
    kind text NOT NULL,
    queue text NOT NULL,
    tenant text,
    key text,
    -- The limit under which it runs, and the key there; '' if the limit has no keys.
    limit_name text,
    limit_key text,
    -- Its workflow, and which of the workflow's nodes are like it. NULL: it belongs to none.
    workflow text,
    stack integer,
    -- How many of the jobs that it waits for have not ended as it wants. While it waits, `run_at`
    -- is the time before which it must not run, or below 0: the negated delay after its release.
    pending integer,
    -- True if its end needs a closer look than a count of what waits for it: a job wants its death,
    -- or began to wait for it when it existed already.
    watched integer,
    -- Where it stands among the jobs of its key, if these run in order. NULL: they don't.
    place integer,
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text,
    -- Results of other jobs that its run gets as arguments: JSON.
    inputs text
);

-- A lane is (queue, rank, kind); a claim reads the head of a lane.
CREATE INDEX rowlock_job_lane ON rowlock_job (queue, rank, kind, run_at, id)
    WHERE lease_expires_at IS NULL AND held_by IS NULL;
CREATE INDEX rowlock_job_tenant_lane ON rowlock_job (tenant, queue, rank, kind, run_at, id)
    WHERE lease_expires_at IS NULL AND held_by IS NULL AND tenant IS NOT NULL;
-- Jobs with a limit, by key, that are due and that nobody runs: where each key has its turn.
CREATE INDEX rowlock_job_room ON rowlock_job (
    queue, rank, kind, limit_name, limit_key, run_at, id
) WHERE lease_expires_at IS NULL AND held_by = 1;
-- Jobs with a limit that are not due. They are let into their rooms when they are.
CREATE INDEX rowlock_job_outside ON rowlock_job (queue, run_at, id)
    WHERE lease_expires_at IS NULL AND held_by = 2;
CREATE INDEX rowlock_job_tenant_held ON rowlock_job (tenant, queue, run_at)
    WHERE lease_expires_at IS NULL AND held_by IS NOT NULL AND tenant IS NOT NULL;
-- What runs under a limit, by key.
CREATE INDEX rowlock_job_turn ON rowlock_job (limit_name, limit_key)
    WHERE lease_expires_at IS NOT NULL AND limit_name IS NOT NULL;
-- Jobs that run in order, whether they wait or run.
CREATE INDEX rowlock_job_order ON rowlock_job (limit_name, limit_key, place, id)
    WHERE place IS NOT NULL;
-- Retries that were promoted in a queue ordered by age leave it.
CREATE INDEX rowlock_job_retried ON rowlock_job (queue, run_at)
    WHERE lease_expires_at IS NULL AND attempt > 0 AND run_at > created_at;
CREATE INDEX rowlock_job_lease ON rowlock_job (lease_expires_at)
    WHERE lease_expires_at IS NOT NULL;
-- One live job holds a key. Where `key_hold` is -2, a job that runs does not hold it: its own id
-- then sets it apart, and it can still be found by its key. A job that is held for a move, by a
-- lease until 9999, does not run.
CREATE UNIQUE INDEX rowlock_job_key ON rowlock_job (
    coalesce(tenant, ''), kind, key,
    (CASE
        WHEN key_hold = -2 AND lease_expires_at < 253000000000000000 THEN id
        ELSE ''
    END)
) WHERE key IS NOT NULL;

-- The jobs of workflows.
CREATE INDEX rowlock_job_workflow ON rowlock_job (workflow, held_by, stack, id)
    WHERE workflow IS NOT NULL;
-- Jobs that wait for others, for counts.
CREATE INDEX rowlock_job_waiting ON rowlock_job (queue)
    WHERE held_by = 3;

-- Limits. `declared` is what the code says, `chosen` what was set since (both JSON), and the other
-- numbers are what counts: those of `declared` with those of `chosen` over them. NULL: no limit.
-- `interval_us` is the time between two starts of a rate, `tat` the time at which the next start
-- would be due if starts came at exactly that rate (GCRA).
CREATE TABLE rowlock_job_limit (
    name text NOT NULL PRIMARY KEY,
    declared_at integer NOT NULL,
    concurrency integer,
    interval_us integer,
    burst integer,
    key_concurrency integer,
    key_interval_us integer,
    key_burst integer,
    is_ordered integer NOT NULL,
    pauses_when_dead integer NOT NULL,
    tat integer NOT NULL DEFAULT 0,
    closed_until integer,
    closed_by text,
    -- How often each key has its turn, where that is not once: JSON.
    weights text,
    declared text NOT NULL,
    chosen text
);

-- Keys of limits about which there is something to remember. NULL: as the limit has it.
CREATE TABLE rowlock_limit_key (
    limit_name text NOT NULL,
    key text NOT NULL,
    tat integer NOT NULL DEFAULT 0,
    closed_until integer,
    concurrency integer,
    interval_us integer,
    burst integer,
    weight integer,
    closed_by text,
    PRIMARY KEY (limit_name, key)
);
-- Keys that were paused or have numbers of their own. A start does not write it.
CREATE INDEX rowlock_limit_key_chosen ON rowlock_limit_key (limit_name, key)
    WHERE coalesce(closed_until, concurrency, interval_us, weight) IS NOT NULL;

CREATE TABLE rowlock_finished (
    id text NOT NULL PRIMARY KEY,
    run_at integer NOT NULL,
    created_at integer NOT NULL,
    started_at integer,
    finished_at integer NOT NULL,
    expires_at integer,
    token integer NOT NULL,
    key_hold integer,
    attempt integer NOT NULL,
    max_attempts integer,
    crashes integer NOT NULL,
    log_lines integer NOT NULL,
    rank integer NOT NULL,
    cancel_requested integer NOT NULL,
    lease_taken integer NOT NULL,
    state text NOT NULL,
    kind text NOT NULL,
    queue text NOT NULL,
    tenant text,
    key text,
    limit_name text,
    limit_key text,
    workflow text,
    stack integer,
    watched integer,
    place integer,
    worker text,
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text,
    result text,
    -- Of a dead job: what it died of.
    fingerprint text,
    -- Of a cancelled job: 1 because of the end of a job that it waited for, 2 it was not needed.
    cause integer,
    inputs text
);

CREATE INDEX rowlock_finished_expiry ON rowlock_finished (expires_at)
    WHERE expires_at IS NOT NULL;
-- Not for succeeded jobs: they are the many, and nobody looks for them by queue.
CREATE INDEX rowlock_finished_queue ON rowlock_finished (queue, state, finished_at, id)
    WHERE state <> 'succeeded';
CREATE INDEX rowlock_finished_dead ON rowlock_finished (finished_at, id)
    WHERE state = 'dead';
CREATE INDEX rowlock_finished_key ON rowlock_finished (coalesce(tenant, ''), kind, key)
    WHERE key_hold = -1;
-- Dead jobs by what they died of.
CREATE INDEX rowlock_finished_fingerprint ON rowlock_finished (fingerprint, finished_at, id)
    WHERE state = 'dead' AND fingerprint IS NOT NULL;

CREATE INDEX rowlock_finished_workflow ON rowlock_finished (workflow, state, stack, id)
    WHERE workflow IS NOT NULL;

-- Workflows. `ended_at`: a sweep has seen that none of its jobs is live. From then on the time runs
-- for which its ended jobs are kept: until then their `expires_at` is later than year 9987.
CREATE TABLE rowlock_workflow (
    id text NOT NULL PRIMARY KEY,
    created_at integer NOT NULL,
    ended_at integer,
    -- When what is left of it is cancelled.
    deadline integer,
    cancelled_at integer,
    -- The job that began it.
    parent text,
    name text NOT NULL,
    key text,
    tenant text,
    meta text
);
-- One open workflow holds a key.
CREATE UNIQUE INDEX rowlock_workflow_key ON rowlock_workflow (coalesce(tenant, ''), name, key)
    WHERE key IS NOT NULL AND ended_at IS NULL;
CREATE INDEX rowlock_workflow_open ON rowlock_workflow (id)
    WHERE ended_at IS NULL;
CREATE INDEX rowlock_workflow_ended ON rowlock_workflow (ended_at)
    WHERE ended_at IS NOT NULL;

-- Which job waits for which, and for what end: 1 success, and it waits for a dead job to be
-- retried; 2 success, and it is cancelled by a death; 3 success or death; 4 any end; 5 death.
-- `is_met`: the parent died or was cancelled, and the child has counted that. A later success of
-- the parent, after a retry, must not be counted again. (Successes are final, and need no mark.)
CREATE TABLE rowlock_edge (
    parent text NOT NULL,
    child text NOT NULL,
    wants integer NOT NULL,
    is_met integer NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
CREATE INDEX rowlock_edge_child ON rowlock_edge (child);

-- The shape of a workflow: which stacks of like nodes it has, and which waits for which. One row
-- for each pair, and one with `parent` 0 for each stack.
CREATE TABLE rowlock_stack (
    workflow text NOT NULL,
    stack integer NOT NULL,
    parent integer NOT NULL,
    wants integer NOT NULL,
    kind text NOT NULL,
    PRIMARY KEY (workflow, stack, parent)
);

-- Keys that outlive the flight, and ids remembered after their row is gone.
CREATE TABLE rowlock_key_hold (
    holder text NOT NULL PRIMARY KEY,
    until integer NOT NULL,
    key_until integer,
    token integer NOT NULL,
    lease_taken integer NOT NULL,
    state text NOT NULL,
    kind text NOT NULL,
    queue text NOT NULL,
    tenant text,
    key text
);

CREATE INDEX rowlock_key_hold_expiry ON rowlock_key_hold (until);
CREATE INDEX rowlock_key_hold_key ON rowlock_key_hold (coalesce(tenant, ''), kind, key)
    WHERE key_until IS NOT NULL;

CREATE TABLE rowlock_queue (
    name text NOT NULL PRIMARY KEY,
    is_paused integer NOT NULL DEFAULT 0,
    by_age integer NOT NULL DEFAULT 0
);

CREATE TABLE rowlock_worker (
    id text NOT NULL PRIMARY KEY,
    started_at integer NOT NULL,
    beat_at integer NOT NULL,
    pid integer NOT NULL,
    host text NOT NULL,
    queues text NOT NULL,
    kinds text NOT NULL,
    -- What it tells of itself: how many slots it has, its memory, leases that it lost.
    vitals text
);

CREATE TABLE rowlock_log (
    job_id text NOT NULL,
    line integer NOT NULL,
    at integer NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (job_id, line)
);

-- By this random id a caller's connection is recognised as one to the same database.
CREATE TABLE rowlock_instance (
    id text NOT NULL PRIMARY KEY
);
INSERT INTO rowlock_instance (id) VALUES (lower(hex(randomblob(16))));

-- The server's key, by which it seals cursors. Made once, so that all servers have the same.
CREATE TABLE rowlock_secret (
    name text NOT NULL PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO rowlock_secret (name, value) VALUES ('cursor', lower(hex(randomblob(32))));

-- Schedules: what is enqueued at which times, and when next.
-- A tick is claimed by moving next_at on from its old value, in the transaction that enqueues its
-- job: so one row a schedule is enough, and a tick needs no row of its own to be unique.

CREATE TABLE rowlock_schedule (
    name text NOT NULL PRIMARY KEY,
    next_at integer NOT NULL,
    last_at integer,
    last_job_id text,
    key_hold integer,
    max_attempts integer,
    rank integer NOT NULL,
    is_paused integer NOT NULL DEFAULT 0,
    source text NOT NULL,
    missed text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    kind text NOT NULL,
    queue text NOT NULL,
    tenant text,
    key text,
    payload text NOT NULL,
    policy text,
    tags text,
    meta text
);

CREATE INDEX rowlock_schedule_due ON rowlock_schedule (next_at, name)
    WHERE NOT is_paused;

-- What the HTTP server keeps: tokens, who did what, and work on many jobs at once.

-- Rows stay when they are revoked, so that the audit's ids can be looked up. The token of a login
-- link has no digest: nobody can send it, and only sessions use it.
CREATE TABLE rowlock_token (
    id text NOT NULL PRIMARY KEY,
    created_at integer NOT NULL,
    expires_at integer,
    revoked_at integer,
    last_used_at integer,
    digest text,
    name text NOT NULL,
    scopes text NOT NULL,
    tenant text
);

-- What requests with an idempotency key were answered with: by the digest of tenant and key, with
-- the digest of what was sent. Written in the transaction that enqueues the jobs.
CREATE TABLE rowlock_first_answer (
    id text NOT NULL PRIMARY KEY,
    at integer NOT NULL,
    request text NOT NULL,
    answer text NOT NULL
);

CREATE INDEX rowlock_first_answer_expiry ON rowlock_first_answer (at);

CREATE INDEX rowlock_token_login ON rowlock_token (expires_at)
    WHERE digest IS NULL;

-- Sessions of browsers. A session is valid as long as its token is.
CREATE TABLE rowlock_session (
    digest text NOT NULL PRIMARY KEY,
    created_at integer NOT NULL,
    expires_at integer NOT NULL,
    token_id text NOT NULL
);

CREATE INDEX rowlock_session_expiry ON rowlock_session (expires_at);
CREATE INDEX rowlock_session_token ON rowlock_session (token_id, created_at);

CREATE TABLE rowlock_audit (
    id text NOT NULL PRIMARY KEY,
    at integer NOT NULL,
    token_id text,
    actor text NOT NULL,
    tenant text,
    action text NOT NULL,
    target text NOT NULL,
    address text,
    detail text
);

CREATE INDEX rowlock_audit_expiry ON rowlock_audit (at);
CREATE INDEX rowlock_audit_target ON rowlock_audit (target, id);
CREATE INDEX rowlock_audit_tenant ON rowlock_audit (tenant, id)
    WHERE tenant IS NOT NULL;

CREATE TABLE rowlock_bulk (
    id text NOT NULL PRIMARY KEY,
    created_at integer NOT NULL,
    updated_at integer NOT NULL,
    finished_at integer,
    total integer NOT NULL,
    done integer NOT NULL DEFAULT 0,
    skipped integer NOT NULL DEFAULT 0,
    is_exact integer NOT NULL,
    actor text NOT NULL,
    tenant text,
    action text NOT NULL,
    chosen text NOT NULL,
    place text NOT NULL,
    skipped_ids text NOT NULL,
    problem text
);

CREATE INDEX rowlock_bulk_running ON rowlock_bulk (id)
    WHERE finished_at IS NULL;

-- History: how runs ended, added up by time, queue and kind; and how much waited, once a minute.
-- A row is a part of the sums of its slot of time: each process writes rows of its own, so nobody
-- waits for anybody, and the janitor folds them, later into longer slots. Times are microseconds.

CREATE TABLE rowlock_history (
    part text NOT NULL,
    at integer NOT NULL,
    width integer NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    sums text NOT NULL,
    PRIMARY KEY (part, queue, kind)
);

CREATE INDEX rowlock_history_at ON rowlock_history (at);
CREATE INDEX rowlock_history_width ON rowlock_history (width, at);

CREATE TABLE rowlock_depth (
    at integer NOT NULL,
    queue text NOT NULL,
    ready integer NOT NULL,
    scheduled integer NOT NULL,
    running integer NOT NULL,
    retrying integer NOT NULL,
    oldest_us integer,
    PRIMARY KEY (at, queue)
);

-- Events: what happened lately, for those who listen. A row is what one process had to tell at a
-- time.

CREATE TABLE rowlock_event (
    id integer PRIMARY KEY AUTOINCREMENT,
    at integer NOT NULL,
    events text NOT NULL
);

CREATE INDEX rowlock_event_at ON rowlock_event (at);

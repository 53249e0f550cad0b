-- Jobs, live and finished, and what belongs to them.
-- Times and durations are microseconds; rank is the negated priority, so that every index ascends.
-- Names sort by bytes: an upgrade of the system's locales can't break the indexes.

-- A claim changes columns from `token` to `worker`, and no index has one of them: so PostgreSQL
-- writes the new version of the row beside the old one, and no index entry. What comes before and
-- after is the same in both versions, and not in the WAL. (As they were ordered before: 16 bytes
-- more per job.)
CREATE TABLE rowlock.job (
    id uuid PRIMARY KEY,
    run_at bigint NOT NULL,
    created_at bigint NOT NULL,
    key_hold bigint,
    -- The same as `lease_expires_at`, if the lease is found by job_lease. NULL if nobody runs the
    -- job, and if its lease is found by a row of `claim`.
    indexed_lease bigint,
    max_attempts integer,
    crashes integer NOT NULL DEFAULT 0,
    log_lines integer NOT NULL DEFAULT 0,
    rank smallint NOT NULL,
    -- Why the job is not in its lane, though nobody may run it: 1 it waits at its limit, 2 it has a
    -- limit and is not due, 3 it waits for other jobs. NULL: it is in its lane. A run leaves it as
    -- it is.
    held_by smallint,
    -- Of a run that nobody has settled. `begun`: a committed write says that its handler was
    -- called, or was about to be. `losses`: leases lost in a row. `interruptions`: runs that left
    -- a trace but were not counted as attempts. `quarantined`: its process died, and no run has
    -- ended by itself since, so that it runs alone next.
    losses smallint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    started_at bigint,
    lease_expires_at bigint,
    -- NULL until the first heartbeat: then the start stands for it.
    beat_at bigint,
    attempt integer NOT NULL DEFAULT 0,
    interruptions smallint NOT NULL DEFAULT 0,
    quarantined boolean NOT NULL DEFAULT false,
    begun boolean NOT NULL DEFAULT false,
    cancel_requested boolean NOT NULL DEFAULT false,
    lease_taken boolean NOT NULL DEFAULT false,
    -- Whether attempts were counted when it began to wait: job_retried can't have `attempt`, which
    -- every claim changes.
    is_retry boolean NOT NULL DEFAULT false,
    worker text COLLATE "C",
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    key text COLLATE "C",
    -- The limit under which it runs, and the key there; '' if the limit has no keys.
    limit_name text COLLATE "C",
    limit_key text COLLATE "C",
    -- Its workflow, and which of the workflow's nodes are like it. NULL: it belongs to none.
    workflow uuid,
    stack bigint,
    -- How many of the jobs that it waits for have not ended as it wants. While it waits, `run_at`
    -- is the time before which it must not run, or below 0: the negated delay after its release.
    pending integer,
    -- True if its end needs a closer look than a count of what waits for it: a job wants its death,
    -- or began to wait for it when it existed already. Then NULL is changed to true under its lock.
    watched boolean,
    -- Where it stands among the jobs of its key, if these run in order. NULL: they don't.
    place bigint,
    -- When it was last started under its limit: the number of that start among all.
    turn bigint,
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text,
    -- Results of other jobs that its run gets as arguments: JSON.
    inputs text
) WITH (
    -- Room for a second version of each row in its page, which has its worker and times too. With
    -- 60, many claims touched the indexes again: 1179 bytes of WAL per job instead of 997.
    fillfactor = 42,
    -- Small and busy: vacuum by what changed, not by a share of what is there.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- A lane is (queue, rank, kind); a claim reads the head of a lane. Jobs stay in it while their
-- leases are not in job_lease.
CREATE INDEX job_lane ON rowlock.job (queue, rank, kind, run_at, id)
    WHERE indexed_lease IS NULL AND held_by IS NULL;
CREATE INDEX job_tenant_lane ON rowlock.job (tenant, queue, rank, kind, run_at, id)
    WHERE indexed_lease IS NULL AND held_by IS NULL AND tenant IS NOT NULL;
-- Jobs with a limit, by key, that are due and that nobody runs: where each key has its turn. One
-- number instead of three names: a walk from key to key took 20 µs each instead of 10.
CREATE INDEX job_room ON rowlock.job (
    queue,
    hashtextextended(textcat(textcat(kind, '/'), limit_name), rank),
    limit_key,
    run_at,
    id
) WHERE indexed_lease IS NULL AND held_by = 1;
-- Jobs with a limit that are not due. They are let into their rooms when they are.
CREATE INDEX job_outside ON rowlock.job (queue, run_at, id)
    WHERE indexed_lease IS NULL AND held_by = 2;
CREATE INDEX job_tenant_held ON rowlock.job (tenant, queue, run_at)
    WHERE indexed_lease IS NULL AND held_by IS NOT NULL AND tenant IS NOT NULL;
-- What runs under a limit, by key.
CREATE INDEX job_turn ON rowlock.job (limit_name, limit_key, turn)
    WHERE indexed_lease IS NOT NULL AND limit_name IS NOT NULL;
-- Jobs that run in order, whether they wait or run.
CREATE INDEX job_order ON rowlock.job (limit_name, limit_key, place, id)
    WHERE place IS NOT NULL;
-- Retries that were promoted in a queue ordered by age leave it.
CREATE INDEX job_retried ON rowlock.job (queue, run_at)
    WHERE indexed_lease IS NULL AND is_retry AND run_at > created_at;
CREATE INDEX job_lease ON rowlock.job (indexed_lease)
    WHERE indexed_lease IS NOT NULL;
-- One live job holds a key. Where `key_hold` is -2, a job that runs does not hold it: its own id
-- then sets it apart, and it can still be found by its key. A job that is held for a move, by a
-- lease until 9999, does not run.
CREATE UNIQUE INDEX job_key ON rowlock.job (
    coalesce(tenant, ''), kind, key,
    (CASE
        WHEN key_hold = -2 AND indexed_lease < 253000000000000000 THEN id
        ELSE '00000000-0000-0000-0000-000000000000'::uuid
    END)
) WHERE key IS NOT NULL;

-- The jobs of workflows.
CREATE INDEX job_workflow ON rowlock.job (workflow, held_by, stack, id)
    WHERE workflow IS NOT NULL;
-- Jobs that wait for others, for counts.
CREATE INDEX job_waiting ON rowlock.job (queue)
    WHERE held_by = 3;

-- Where to look for leases that are not in job_lease: the stretch of a lane from which a claim took
-- jobs, and until when. Written with the claim, in one statement. Removed with the end of the last
-- of its jobs, or by a sweep when none of its leases is left.
CREATE TABLE rowlock.claim (
    id uuid PRIMARY KEY,
    until bigint NOT NULL,
    first_at bigint NOT NULL,
    first_id uuid NOT NULL,
    last_at bigint NOT NULL,
    last_id uuid NOT NULL,
    rank smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX claim_until ON rowlock.claim (until);

-- The numbers of starts under limits, and the places of jobs that run in order.
CREATE SEQUENCE rowlock.turn_number OWNED BY rowlock.job.turn;

-- Limits. `declared` is what the code says, `chosen` what was set since (both JSON), and the other
-- numbers are what counts: those of `declared` with those of `chosen` over them. NULL: no limit.
-- `interval_us` is the time between two starts of a rate, `tat` the time at which the next start
-- would be due if starts came at exactly that rate (GCRA).
CREATE TABLE rowlock.job_limit (
    name text COLLATE "C" PRIMARY KEY,
    declared_at bigint NOT NULL,
    concurrency integer,
    interval_us bigint,
    burst integer,
    key_concurrency integer,
    key_interval_us bigint,
    key_burst integer,
    is_ordered boolean NOT NULL,
    pauses_when_dead boolean NOT NULL,
    tat bigint NOT NULL DEFAULT 0,
    closed_until bigint,
    closed_by text,
    -- How often each key has its turn, where that is not once: JSON.
    weights text,
    declared text NOT NULL,
    chosen text
);

-- Keys of limits about which there is something to remember. NULL: as the limit has it.
CREATE TABLE rowlock.limit_key (
    limit_name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    tat bigint NOT NULL DEFAULT 0,
    closed_until bigint,
    concurrency integer,
    interval_us bigint,
    burst integer,
    weight integer,
    closed_by text,
    PRIMARY KEY (limit_name, key)
) WITH (
    -- A start writes `tat`, which no index has.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
-- Keys that were paused or have numbers of their own. A start does not write it.
CREATE INDEX limit_key_chosen ON rowlock.limit_key (limit_name, key)
    WHERE coalesce(closed_until, concurrency, interval_us, weight) IS NOT NULL;

CREATE TABLE rowlock.finished (
    id uuid PRIMARY KEY,
    run_at bigint NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint NOT NULL,
    expires_at bigint,
    token bigint NOT NULL,
    key_hold bigint,
    attempt integer NOT NULL,
    max_attempts integer,
    crashes integer NOT NULL,
    log_lines integer NOT NULL,
    rank smallint NOT NULL,
    cancel_requested boolean NOT NULL,
    lease_taken boolean NOT NULL,
    state text NOT NULL,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    key text COLLATE "C",
    limit_name text COLLATE "C",
    limit_key text COLLATE "C",
    workflow uuid,
    stack bigint,
    watched boolean,
    place bigint,
    worker text COLLATE "C",
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text,
    result text,
    -- Of a dead job: what it died of.
    fingerprint text COLLATE "C",
    -- Of a cancelled job: 1 because of the end of a job that it waited for, 2 it was not needed.
    cause smallint,
    inputs text
);

-- Retention needs it. It costs 67 bytes of WAL and a tenth of a settle's CPU time per job.
CREATE INDEX finished_expiry ON rowlock.finished (expires_at)
    WHERE expires_at IS NOT NULL;
-- Not for succeeded jobs: they are the many, and nobody looks for them by queue.
CREATE INDEX finished_queue ON rowlock.finished (queue, state, finished_at, id)
    WHERE state <> 'succeeded';
CREATE INDEX finished_dead ON rowlock.finished (finished_at, id)
    WHERE state = 'dead';
CREATE INDEX finished_key ON rowlock.finished (coalesce(tenant, ''), kind, key)
    WHERE key_hold = -1;
-- Dead jobs by what they died of.
CREATE INDEX finished_fingerprint ON rowlock.finished (fingerprint, finished_at, id)
    WHERE state = 'dead' AND fingerprint IS NOT NULL;

CREATE INDEX finished_workflow ON rowlock.finished (workflow, state, stack, id)
    WHERE workflow IS NOT NULL;

-- Workflows. `ended_at`: a sweep has seen that none of its jobs is live. From then on the time runs
-- for which its ended jobs are kept: until then their `expires_at` is later than year 9987.
CREATE TABLE rowlock.workflow (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    ended_at bigint,
    -- When what is left of it is cancelled.
    deadline bigint,
    cancelled_at bigint,
    -- The job that began it.
    parent uuid,
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    tenant text COLLATE "C",
    meta text
);
-- One open workflow holds a key.
CREATE UNIQUE INDEX workflow_key ON rowlock.workflow (coalesce(tenant, ''), name, key)
    WHERE key IS NOT NULL AND ended_at IS NULL;
CREATE INDEX workflow_open ON rowlock.workflow (id)
    WHERE ended_at IS NULL;
CREATE INDEX workflow_ended ON rowlock.workflow (ended_at)
    WHERE ended_at IS NOT NULL;

-- Which job waits for which, and for what end: 1 success, and it waits for a dead job to be
-- retried; 2 success, and it is cancelled by a death; 3 success or death; 4 any end; 5 death.
-- `is_met`: the parent died or was cancelled, and the child has counted that. A later success of
-- the parent, after a retry, must not be counted again. (Successes are final, and need no mark.)
CREATE TABLE rowlock.edge (
    parent uuid NOT NULL,
    child uuid NOT NULL,
    wants smallint NOT NULL,
    is_met boolean NOT NULL DEFAULT false,
    PRIMARY KEY (parent, child)
);
CREATE INDEX edge_child ON rowlock.edge (child);

-- The shape of a workflow: which stacks of like nodes it has, and which waits for which. One row
-- for each pair, and one with `parent` 0 for each stack.
CREATE TABLE rowlock.stack (
    workflow uuid NOT NULL,
    stack bigint NOT NULL,
    parent bigint NOT NULL,
    wants smallint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    PRIMARY KEY (workflow, stack, parent)
);

-- Keys that outlive the flight, and ids remembered after their row is gone.
CREATE TABLE rowlock.key_hold (
    holder uuid PRIMARY KEY,
    until bigint NOT NULL,
    key_until bigint,
    token bigint NOT NULL,
    lease_taken boolean NOT NULL,
    state text NOT NULL,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    key text COLLATE "C"
);

CREATE INDEX key_hold_expiry ON rowlock.key_hold (until);
CREATE INDEX key_hold_key ON rowlock.key_hold (coalesce(tenant, ''), kind, key)
    WHERE key_until IS NOT NULL;

CREATE TABLE rowlock.queue (
    name text COLLATE "C" PRIMARY KEY,
    is_paused boolean NOT NULL DEFAULT false,
    by_age boolean NOT NULL DEFAULT false
);

CREATE TABLE rowlock.worker (
    id text COLLATE "C" PRIMARY KEY,
    started_at bigint NOT NULL,
    beat_at bigint NOT NULL,
    pid integer NOT NULL,
    host text NOT NULL,
    queues text NOT NULL,
    kinds text NOT NULL,
    -- What it tells of itself: how many slots it has, its memory, leases that it lost.
    vitals text
);

CREATE TABLE rowlock.log (
    job_id uuid NOT NULL,
    line integer NOT NULL,
    at bigint NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (job_id, line)
);

-- By this random id a caller's connection is recognised as one to the same database.
CREATE TABLE rowlock.instance (
    id uuid PRIMARY KEY
);
INSERT INTO rowlock.instance (id) VALUES (gen_random_uuid());

-- The server's key, by which it seals cursors. Made once, so that all servers have the same.
CREATE TABLE rowlock.secret (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO rowlock.secret (name, value)
VALUES ('cursor', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

-- Schedules: what is enqueued at which times, and when next.
-- A tick is claimed by moving next_at on from its old value, in the transaction that enqueues its
-- job: so one row a schedule is enough, and a tick needs no row of its own to be unique.

CREATE TABLE rowlock.schedule (
    name text COLLATE "C" PRIMARY KEY,
    next_at bigint NOT NULL,
    last_at bigint,
    last_job_id uuid,
    key_hold bigint,
    max_attempts integer,
    rank smallint NOT NULL,
    is_paused boolean NOT NULL DEFAULT false,
    source text NOT NULL,
    missed text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    key text COLLATE "C",
    payload text NOT NULL,
    policy text,
    tags text,
    meta text
);

CREATE INDEX schedule_due ON rowlock.schedule (next_at, name)
    WHERE NOT is_paused;

-- What the HTTP server keeps: tokens, who did what, and work on many jobs at once.

-- Rows stay when they are revoked, so that the audit's ids can be looked up. The token of a login
-- link has no digest: nobody can send it, and only sessions use it.
CREATE TABLE rowlock.token (
    id text COLLATE "C" PRIMARY KEY,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    last_used_at bigint,
    digest text,
    name text NOT NULL,
    scopes text NOT NULL,
    tenant text COLLATE "C"
);

-- What requests with an idempotency key were answered with: by the digest of tenant and key, with
-- the digest of what was sent. Written in the transaction that enqueues the jobs.
CREATE TABLE rowlock.first_answer (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL,
    request text NOT NULL,
    answer text NOT NULL
);

CREATE INDEX first_answer_expiry ON rowlock.first_answer (at);

CREATE INDEX token_login ON rowlock.token (expires_at)
    WHERE digest IS NULL;

-- Sessions of browsers. A session is valid as long as its token is.
CREATE TABLE rowlock.session (
    digest text COLLATE "C" PRIMARY KEY,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    token_id text COLLATE "C" NOT NULL
);

CREATE INDEX session_expiry ON rowlock.session (expires_at);
CREATE INDEX session_token ON rowlock.session (token_id, created_at);

CREATE TABLE rowlock.audit (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    token_id text COLLATE "C",
    actor text NOT NULL,
    tenant text COLLATE "C",
    action text NOT NULL,
    target text COLLATE "C" NOT NULL,
    address text,
    detail text
);

CREATE INDEX audit_expiry ON rowlock.audit (at);
CREATE INDEX audit_target ON rowlock.audit (target, id);
CREATE INDEX audit_tenant ON rowlock.audit (tenant, id)
    WHERE tenant IS NOT NULL;

CREATE TABLE rowlock.bulk (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    finished_at bigint,
    total bigint NOT NULL,
    done bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    is_exact boolean NOT NULL,
    actor text NOT NULL,
    tenant text COLLATE "C",
    action text NOT NULL,
    chosen text NOT NULL,
    place text NOT NULL,
    skipped_ids text NOT NULL,
    problem text
);

CREATE INDEX bulk_running ON rowlock.bulk (id)
    WHERE finished_at IS NULL;

-- History: how runs ended, added up by time, queue and kind; and how much waited, once a minute.
-- A row is a part of the sums of its slot of time: each process writes rows of its own, so nobody
-- waits for anybody, and the janitor folds them, later into longer slots. Times are microseconds.

CREATE TABLE rowlock.history (
    part uuid NOT NULL,
    at bigint NOT NULL,
    width integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    sums text NOT NULL,
    PRIMARY KEY (part, queue, kind)
);

CREATE INDEX history_at ON rowlock.history (at);
CREATE INDEX history_width ON rowlock.history (width, at);

CREATE TABLE rowlock.depth (
    at bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    ready bigint NOT NULL,
    scheduled bigint NOT NULL,
    running bigint NOT NULL,
    retrying bigint NOT NULL,
    oldest_us bigint,
    PRIMARY KEY (at, queue)
);

-- Events: what happened lately, for those who listen. A row is what one process had to tell at a
-- time. Not logged: after a crash of the server it is empty, and a job's own row is the truth.

-- The numbers are logged: those of a table that is not are unreadable on a standby that took over.
CREATE SEQUENCE rowlock.event_number;

CREATE UNLOGGED TABLE rowlock.event (
    id bigint NOT NULL DEFAULT nextval('rowlock.event_number') PRIMARY KEY,
    at bigint NOT NULL,
    events text NOT NULL
);

CREATE INDEX event_at ON rowlock.event (at);

ALTER SEQUENCE rowlock.event_number OWNED BY rowlock.event.id;

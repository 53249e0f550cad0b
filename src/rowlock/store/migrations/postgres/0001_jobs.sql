-- Jobs, live and finished, and what belongs to them.
-- Times and durations are microseconds; rank is the negated priority, so that every index ascends.
-- Names sort by bytes: an upgrade of the system's locales can't break the indexes.

CREATE TABLE rowlock.job (
    id uuid PRIMARY KEY,
    run_at bigint NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    lease_expires_at bigint,
    beat_at bigint,
    token bigint NOT NULL DEFAULT 0,
    key_hold bigint,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer,
    crashes integer NOT NULL DEFAULT 0,
    log_lines integer NOT NULL DEFAULT 0,
    rank smallint NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    lease_taken boolean NOT NULL DEFAULT false,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    key text COLLATE "C",
    worker text COLLATE "C",
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text
) WITH (
    -- Small and busy: vacuum by what changed, not by a share of what is there.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- A lane is (queue, rank, kind); a claim reads the head of a lane.
CREATE INDEX job_lane ON rowlock.job (queue, rank, kind, run_at, id)
    WHERE lease_expires_at IS NULL;
CREATE INDEX job_tenant_lane ON rowlock.job (tenant, queue, rank, kind, run_at, id)
    WHERE lease_expires_at IS NULL AND tenant IS NOT NULL;
CREATE INDEX job_retried ON rowlock.job (queue, run_at)
    WHERE lease_expires_at IS NULL AND attempt > 0;
CREATE INDEX job_lease ON rowlock.job (lease_expires_at)
    WHERE lease_expires_at IS NOT NULL;
CREATE UNIQUE INDEX job_key ON rowlock.job (coalesce(tenant, ''), kind, key)
    WHERE key IS NOT NULL;

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
    worker text COLLATE "C",
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text,
    result text
);

CREATE INDEX finished_expiry ON rowlock.finished (expires_at)
    WHERE expires_at IS NOT NULL;
-- Not for succeeded jobs: they are the many, and nobody looks for them by queue.
CREATE INDEX finished_queue ON rowlock.finished (queue, state, finished_at, id)
    WHERE state <> 'succeeded';
CREATE INDEX finished_dead ON rowlock.finished (finished_at, id)
    WHERE state = 'dead';
CREATE INDEX finished_key ON rowlock.finished (coalesce(tenant, ''), kind, key)
    WHERE key_hold = -1;

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
    kinds text NOT NULL
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

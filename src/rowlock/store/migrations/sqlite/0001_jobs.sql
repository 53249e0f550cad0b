-- Jobs, live and finished, and what belongs to them.
-- Times and durations are microseconds; rank is the negated priority, so that every index ascends.

CREATE TABLE rowlock_job (
    id text NOT NULL PRIMARY KEY,
    run_at integer NOT NULL,
    created_at integer NOT NULL,
    started_at integer,
    lease_expires_at integer,
    beat_at integer,
    token integer NOT NULL DEFAULT 0,
    key_hold integer,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer,
    crashes integer NOT NULL DEFAULT 0,
    log_lines integer NOT NULL DEFAULT 0,
    rank integer NOT NULL,
    cancel_requested integer NOT NULL DEFAULT 0,
    lease_taken integer NOT NULL DEFAULT 0,
    kind text NOT NULL,
    queue text NOT NULL,
    tenant text,
    key text,
    worker text,
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text
);

-- A lane is (queue, rank, kind); a claim reads the head of a lane.
CREATE INDEX rowlock_job_lane ON rowlock_job (queue, rank, kind, run_at, id)
    WHERE lease_expires_at IS NULL;
CREATE INDEX rowlock_job_tenant_lane ON rowlock_job (tenant, queue, rank, kind, run_at, id)
    WHERE lease_expires_at IS NULL AND tenant IS NOT NULL;
CREATE INDEX rowlock_job_retried ON rowlock_job (queue, run_at)
    WHERE lease_expires_at IS NULL AND attempt > 0;
CREATE INDEX rowlock_job_lease ON rowlock_job (lease_expires_at)
    WHERE lease_expires_at IS NOT NULL;
CREATE UNIQUE INDEX rowlock_job_key ON rowlock_job (coalesce(tenant, ''), kind, key)
    WHERE key IS NOT NULL;

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
    worker text,
    payload text NOT NULL,
    policy text,
    tags text,
    meta text,
    progress text,
    errors text,
    result text
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
    kinds text NOT NULL
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

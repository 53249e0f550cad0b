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

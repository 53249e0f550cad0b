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

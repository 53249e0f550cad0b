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

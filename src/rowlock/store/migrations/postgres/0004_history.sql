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

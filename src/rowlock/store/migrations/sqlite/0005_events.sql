-- Events: what happened lately, for those who listen. A row is what one process had to tell at a
-- time.

CREATE TABLE rowlock_event (
    id integer PRIMARY KEY AUTOINCREMENT,
    at integer NOT NULL,
    events text NOT NULL
);

CREATE INDEX rowlock_event_at ON rowlock_event (at);

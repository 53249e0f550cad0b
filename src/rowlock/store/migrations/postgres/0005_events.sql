-- Events: what happened lately, for those who listen. A row is what one process had to tell at a
-- time. Not logged: after a crash of the server it is empty, and a job's own row is the truth.

CREATE UNLOGGED TABLE rowlock.event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    events text NOT NULL
);

CREATE INDEX event_at ON rowlock.event (at);

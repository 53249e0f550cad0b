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

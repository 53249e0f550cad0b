-- What the HTTP server keeps: tokens, who did what, and work on many jobs at once.

-- Rows stay when they are revoked: a server that is open as long as no token was ever made must not
-- open again when the last one goes.
CREATE TABLE rowlock_token (
    id text NOT NULL PRIMARY KEY,
    created_at integer NOT NULL,
    expires_at integer,
    revoked_at integer,
    digest text NOT NULL,
    name text NOT NULL,
    scopes text NOT NULL,
    tenant text
);

CREATE TABLE rowlock_audit (
    id text NOT NULL PRIMARY KEY,
    at integer NOT NULL,
    token_id text,
    actor text NOT NULL,
    tenant text,
    action text NOT NULL,
    target text NOT NULL,
    detail text
);

CREATE INDEX rowlock_audit_expiry ON rowlock_audit (at);
CREATE INDEX rowlock_audit_target ON rowlock_audit (target, id);
CREATE INDEX rowlock_audit_tenant ON rowlock_audit (tenant, id)
    WHERE tenant IS NOT NULL;

CREATE TABLE rowlock_bulk (
    id text NOT NULL PRIMARY KEY,
    created_at integer NOT NULL,
    updated_at integer NOT NULL,
    finished_at integer,
    total integer NOT NULL,
    done integer NOT NULL DEFAULT 0,
    skipped integer NOT NULL DEFAULT 0,
    is_exact integer NOT NULL,
    actor text NOT NULL,
    tenant text,
    action text NOT NULL,
    chosen text NOT NULL,
    place text NOT NULL,
    skipped_ids text NOT NULL,
    problem text
);

CREATE INDEX rowlock_bulk_running ON rowlock_bulk (id)
    WHERE finished_at IS NULL;

-- What the HTTP server keeps: tokens, who did what, and work on many jobs at once.

-- Rows stay when they are revoked: a server that is open as long as no token was ever made must not
-- open again when the last one goes.
CREATE TABLE rowlock.token (
    id text COLLATE "C" PRIMARY KEY,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    digest text NOT NULL,
    name text NOT NULL,
    scopes text NOT NULL,
    tenant text COLLATE "C"
);

CREATE TABLE rowlock.audit (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    token_id text COLLATE "C",
    actor text NOT NULL,
    tenant text COLLATE "C",
    action text NOT NULL,
    target text COLLATE "C" NOT NULL,
    detail text
);

CREATE INDEX audit_expiry ON rowlock.audit (at);
CREATE INDEX audit_target ON rowlock.audit (target, id);
CREATE INDEX audit_tenant ON rowlock.audit (tenant, id)
    WHERE tenant IS NOT NULL;

CREATE TABLE rowlock.bulk (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    finished_at bigint,
    total bigint NOT NULL,
    done bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    is_exact boolean NOT NULL,
    actor text NOT NULL,
    tenant text COLLATE "C",
    action text NOT NULL,
    chosen text NOT NULL,
    place text NOT NULL,
    skipped_ids text NOT NULL,
    problem text
);

CREATE INDEX bulk_running ON rowlock.bulk (id)
    WHERE finished_at IS NULL;

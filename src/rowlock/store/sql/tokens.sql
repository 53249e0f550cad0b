-- name: token_add (postgres)
-- Store a token, without its secret.
INSERT INTO rowlock.token (id, created_at, expires_at, digest, name, scopes, tenant)
SELECT :id, clock.now, clock.now + :lifetime::bigint, :digest, :name, :scopes_json, :tenant
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO NOTHING

-- name: token_add (sqlite)
-- Store a token, without its secret.
INSERT INTO rowlock_token (id, created_at, expires_at, digest, name, scopes, tenant)
VALUES (:id, {now}, {now} + :lifetime, :digest, :name, :scopes_json, :tenant)
ON CONFLICT (id) DO NOTHING

-- name: token_find
-- A token by its id, and the current time. Uses token_pkey.
SELECT token.id, token.name, token.scopes, token.tenant, token.created_at, token.expires_at,
    token.revoked_at, token.digest, {now}
FROM rowlock.token AS token
WHERE token.id = :id

-- name: token_list
-- Tokens, newest first, of one tenant if one is given. Few enough to be read as a whole.
SELECT token.id, token.name, token.scopes, token.tenant, token.created_at, token.expires_at,
    token.revoked_at
FROM rowlock.token AS token
WHERE :tenant::text IS NULL OR token.tenant = :tenant::text
ORDER BY token.created_at DESC, token.id
LIMIT :limit

-- name: token_revoke (postgres)
-- Revoke a token, once, of one tenant if one is given. Uses token_pkey.
UPDATE rowlock.token AS token
SET revoked_at = coalesce(token.revoked_at, {now})
WHERE token.id = :id AND (:tenant::text IS NULL OR token.tenant = :tenant::text)
RETURNING token.id

-- name: token_revoke (sqlite)
-- Revoke a token, once, of one tenant if one is given. Uses the primary key.
UPDATE rowlock_token
SET revoked_at = coalesce(revoked_at, {now})
WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant)
RETURNING id

-- name: token_state
-- Whether a token was ever created, and whether one is still valid.
SELECT
    EXISTS (SELECT 1 FROM rowlock.token),
    EXISTS (
        SELECT 1
        FROM rowlock.token AS token
        WHERE token.revoked_at IS NULL
            AND (token.expires_at IS NULL OR token.expires_at > {now})
    )

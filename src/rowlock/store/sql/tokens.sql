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
    token.revoked_at, token.last_used_at, token.digest, {now}
FROM rowlock.token AS token
WHERE token.id = :id

-- name: token_list
-- A page of tokens, newest first, of one tenant if one is given. Few enough to be sorted each time.
SELECT token.id, token.name, token.scopes, token.tenant, token.created_at, token.expires_at,
    token.revoked_at, token.last_used_at
FROM rowlock.token AS token
WHERE (:tenant::text IS NULL OR token.tenant = :tenant::text)
    AND (
        token.created_at < :after::bigint
        OR token.created_at = :after::bigint AND token.id > :after_id::text
    )
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

-- name: token_use (postgres)
-- Note when tokens were used, unless that was noted lately. Uses token_pkey.
UPDATE rowlock.token AS token
SET last_used_at = clock.now
FROM (SELECT {now} AS now) AS clock
WHERE token.id = ANY (:ids::text[])
    AND coalesce(token.last_used_at, 0) <= clock.now - :pause::bigint

-- name: token_use (sqlite)
-- Note when tokens were used, unless that was noted lately. Uses the primary key.
UPDATE rowlock_token
SET last_used_at = {now}
WHERE id IN (SELECT value FROM json_each(:ids)) AND coalesce(last_used_at, 0) <= {now} - :pause

-- name: token_state
-- Whether a token was ever created, and whether one is still valid. Tokens of login links don't
-- count, because nobody can send them.
SELECT
    EXISTS (SELECT 1 FROM rowlock.token AS token WHERE token.digest IS NOT NULL),
    EXISTS (
        SELECT 1
        FROM rowlock.token AS token
        WHERE token.digest IS NOT NULL
            AND token.revoked_at IS NULL
            AND (token.expires_at IS NULL OR token.expires_at > {now})
    )

-- name: session_add (postgres)
-- Start a session of a token. It ends with the token at the latest. Uses token_pkey.
INSERT INTO rowlock.session (digest, created_at, expires_at, token_id)
SELECT :digest, clock.now, least(clock.now + :lifetime::bigint, token.expires_at), token.id
FROM rowlock.token AS token, (SELECT {now} AS now) AS clock
WHERE token.id = :token_id
ON CONFLICT (digest) DO NOTHING

-- name: session_add (sqlite)
-- Start a session of a token. It ends with the token at the latest. Uses the primary key.
INSERT INTO rowlock_session (digest, created_at, expires_at, token_id)
SELECT :digest, {now}, min({now} + :lifetime, coalesce(token.expires_at, {now} + :lifetime)),
    token.id
FROM rowlock_token AS token
WHERE token.id = :token_id
ON CONFLICT (digest) DO NOTHING

-- name: session_trim
-- End the oldest sessions of a token that has too many, besides the new one. Uses session_token.
DELETE FROM rowlock.session
WHERE digest IN (
    SELECT session.digest
    FROM rowlock.session AS session
    WHERE session.token_id = :token_id AND session.digest <> :digest
    ORDER BY session.created_at DESC
    LIMIT :limit OFFSET :kept
)

-- name: session_find
-- The token of a session, when the session ends, and the current time. Uses session_pkey.
SELECT token.id, token.name, token.scopes, token.tenant, token.created_at, token.expires_at,
    token.revoked_at, token.last_used_at, session.expires_at, {now}
FROM rowlock.session AS session
    JOIN rowlock.token AS token ON token.id = session.token_id
WHERE session.digest = :digest

-- name: session_end
-- End a session. Uses session_pkey.
DELETE FROM rowlock.session
WHERE digest = :digest
RETURNING token_id

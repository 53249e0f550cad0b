-- A token by its id, and the time. Uses the primary key.
SELECT token.id, token.name, token.scopes, token.tenant, token.created_at, token.expires_at,
    token.revoked_at, token.digest, {now}
FROM rowlock_token AS token
WHERE token.id = :id

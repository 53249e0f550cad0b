-- A token by its id, and the time. Uses token_pkey.
SELECT token.id, token.name, token.scopes, token.tenant, token.created_at, token.expires_at,
    token.revoked_at, token.digest, {now}
FROM rowlock.token AS token
WHERE token.id = :id

-- Tokens, newest first, of one tenant if one is named. Few enough to be read as a whole.
SELECT token.id, token.name, token.scopes, token.tenant, token.created_at, token.expires_at,
    token.revoked_at
FROM rowlock_token AS token
WHERE :tenant IS NULL OR token.tenant = :tenant
ORDER BY token.created_at DESC, token.id
LIMIT :limit

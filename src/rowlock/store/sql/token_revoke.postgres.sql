-- End a token, once, of one tenant if one is named. Uses token_pkey.
UPDATE rowlock.token AS token
SET revoked_at = coalesce(token.revoked_at, {now})
WHERE token.id = :id AND (:tenant::text IS NULL OR token.tenant = :tenant::text)
RETURNING token.id

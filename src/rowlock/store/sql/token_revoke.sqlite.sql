-- End a token, once, of one tenant if one is named. Uses the primary key.
UPDATE rowlock_token
SET revoked_at = coalesce(revoked_at, {now})
WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant)
RETURNING id

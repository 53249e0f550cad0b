-- Forget ids and keys that need not be remembered any more. Uses key_hold_expiry.
DELETE FROM rowlock_key_hold
WHERE holder IN (
    SELECT held.holder
    FROM rowlock_key_hold AS held
    WHERE held.until <= {now}
    ORDER BY held.until
    LIMIT :limit
)
RETURNING holder

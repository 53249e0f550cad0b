-- Forget ids and keys that need not be remembered any more. Uses key_hold_expiry.
DELETE FROM rowlock.key_hold
WHERE holder IN (
    SELECT held.holder
    FROM rowlock.key_hold AS held
    WHERE held.until <= (SELECT {now})
    ORDER BY held.until
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING holder::text

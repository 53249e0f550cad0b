-- Remove lines of the audit whose time is over. Uses audit_expiry.
DELETE FROM rowlock.audit
WHERE id IN (
    SELECT id
    FROM rowlock.audit
    WHERE at < (SELECT {now}) - :audit_kept::bigint
    ORDER BY at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING id::text

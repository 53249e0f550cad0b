-- Remove lines of the audit whose time is over. Uses audit_expiry.
DELETE FROM rowlock_audit
WHERE id IN (
    SELECT id
    FROM rowlock_audit
    WHERE at < {now} - :audit_kept
    ORDER BY at
    LIMIT :limit
)
RETURNING id

-- A page of what was done to one thing, newest first, within a tenant if one is named.
-- Uses audit_target.
SELECT audit.id, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.detail
FROM rowlock_audit AS audit
WHERE audit.id < coalesce(:cursor, 'g')
    AND audit.target = :target
    AND (:tenant IS NULL OR audit.tenant = :tenant)
ORDER BY audit.id DESC
LIMIT :limit

-- A page of what was done in one tenant, newest first. Uses audit_tenant.
SELECT audit.id, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.detail
FROM rowlock_audit AS audit
WHERE audit.id < coalesce(:cursor, 'g')
    AND audit.tenant = :tenant
ORDER BY audit.id DESC
LIMIT :limit

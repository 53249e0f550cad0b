-- A page of what was done in one tenant, newest first. Uses audit_tenant.
SELECT audit.id::text, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.detail
FROM rowlock.audit AS audit
WHERE audit.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    AND audit.tenant = :tenant
ORDER BY audit.id DESC
LIMIT :limit

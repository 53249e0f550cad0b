-- name: audit_write (postgres)
-- Write an audit entry. Repeated after a lost answer, it is still one entry. Uses audit_pkey.
INSERT INTO rowlock.audit (id, at, token_id, actor, tenant, action, target, address, detail)
SELECT :id::uuid, clock.now, :token_id, :actor, :tenant, :action, :target, :address, :detail
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO NOTHING

-- name: audit_write (sqlite)
-- Write an audit entry. Repeated after a lost answer, it is still one entry. Uses the primary key.
INSERT INTO rowlock_audit (id, at, token_id, actor, tenant, action, target, address, detail)
VALUES (:id, {now}, :token_id, :actor, :tenant, :action, :target, :address, :detail)
ON CONFLICT (id) DO NOTHING

-- name: audit_list (postgres)
-- A page of audit entries, newest first. Uses audit_pkey.
SELECT audit.id::text, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.address, audit.detail
FROM rowlock.audit AS audit
WHERE audit.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY audit.id DESC
LIMIT :limit

-- name: audit_list (sqlite)
-- A page of audit entries, newest first. Uses the primary key.
SELECT audit.id, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.address, audit.detail
FROM rowlock_audit AS audit
WHERE audit.id < coalesce(:cursor, 'g')
ORDER BY audit.id DESC
LIMIT :limit

-- name: audit_of_target (postgres)
-- A page of audit entries for one target, newest first, within a tenant if one is given.
-- Uses audit_target.
SELECT audit.id::text, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.address, audit.detail
FROM rowlock.audit AS audit
WHERE audit.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    AND audit.target = :target
    AND (:tenant::text IS NULL OR audit.tenant = :tenant::text)
ORDER BY audit.id DESC
LIMIT :limit

-- name: audit_of_target (sqlite)
-- A page of audit entries for one target, newest first, within a tenant if one is given.
-- Uses audit_target.
SELECT audit.id, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.address, audit.detail
FROM rowlock_audit AS audit
WHERE audit.id < coalesce(:cursor, 'g')
    AND audit.target = :target
    AND (:tenant IS NULL OR audit.tenant = :tenant)
ORDER BY audit.id DESC
LIMIT :limit

-- name: audit_of_tenant (postgres)
-- A page of audit entries of one tenant, newest first. Uses audit_tenant.
SELECT audit.id::text, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.address, audit.detail
FROM rowlock.audit AS audit
WHERE audit.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    AND audit.tenant = :tenant
ORDER BY audit.id DESC
LIMIT :limit

-- name: audit_of_tenant (sqlite)
-- A page of audit entries of one tenant, newest first. Uses audit_tenant.
SELECT audit.id, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.address, audit.detail
FROM rowlock_audit AS audit
WHERE audit.id < coalesce(:cursor, 'g')
    AND audit.tenant = :tenant
ORDER BY audit.id DESC
LIMIT :limit

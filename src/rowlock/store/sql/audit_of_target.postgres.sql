-- A page of what was done to one thing, newest first, within a tenant if one is named.
-- Uses audit_target.
SELECT audit.id::text, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.detail
FROM rowlock.audit AS audit
WHERE audit.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    AND audit.target = :target
    AND (:tenant::text IS NULL OR audit.tenant = :tenant::text)
ORDER BY audit.id DESC
LIMIT :limit

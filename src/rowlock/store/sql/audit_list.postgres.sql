-- A page of who did what, newest first. Uses audit_pkey.
SELECT audit.id::text, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.detail
FROM rowlock.audit AS audit
WHERE audit.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY audit.id DESC
LIMIT :limit

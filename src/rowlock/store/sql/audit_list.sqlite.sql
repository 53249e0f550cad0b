-- A page of who did what, newest first. Uses the primary key.
SELECT audit.id, audit.at, audit.token_id, audit.actor, audit.tenant, audit.action,
    audit.target, audit.detail
FROM rowlock_audit AS audit
WHERE audit.id < coalesce(:cursor, 'g')
ORDER BY audit.id DESC
LIMIT :limit

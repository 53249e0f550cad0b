-- What was noted of a batch: that it is here, or that it never will be. Uses audit_pkey.
SELECT audit.action
FROM rowlock.audit AS audit
WHERE audit.id = :id::uuid

-- What was noted of a batch: that it is here, or that it never will be. Uses the primary key.
SELECT audit.action
FROM rowlock_audit AS audit
WHERE audit.id = :id

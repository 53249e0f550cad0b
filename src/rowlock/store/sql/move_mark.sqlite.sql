-- Note that a batch is here, once for ever; nothing is returned if it was noted before.
-- Uses the primary key.
INSERT INTO rowlock_audit (id, at, actor, action, target, detail)
VALUES (:id, {now}, :actor, :action, :target, :detail)
ON CONFLICT (id) DO NOTHING
RETURNING id

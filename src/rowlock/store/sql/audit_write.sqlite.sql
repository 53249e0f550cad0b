-- Note who did what; said again after a lost answer, it is still one line. Uses the primary key.
INSERT INTO rowlock_audit (id, at, token_id, actor, tenant, action, target, detail)
VALUES (:id, {now}, :token_id, :actor, :tenant, :action, :target, :detail)
ON CONFLICT (id) DO NOTHING

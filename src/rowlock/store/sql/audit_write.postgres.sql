-- Note who did what; said again after a lost answer, it is still one line. Uses audit_pkey.
INSERT INTO rowlock.audit (id, at, token_id, actor, tenant, action, target, detail)
SELECT :id::uuid, clock.now, :token_id, :actor, :tenant, :action, :target, :detail
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO NOTHING

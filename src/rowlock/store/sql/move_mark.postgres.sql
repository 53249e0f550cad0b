-- Note that a batch is here, once for ever; nothing is returned if it was noted before.
-- Uses audit_pkey.
INSERT INTO rowlock.audit (id, at, actor, action, target, detail)
SELECT :id::uuid, clock.now, :actor, :action, :target, :detail
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO NOTHING
RETURNING id::text

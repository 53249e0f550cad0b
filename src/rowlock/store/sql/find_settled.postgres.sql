-- Jobs that ended, but whose id or key still answers an enqueue: (asked id, its holder).
-- A statement of its own after the insert, which may have waited for that very end.
-- Uses finished_pkey, finished_key, key_hold_pkey, key_hold_key.
WITH asked AS MATERIALIZED (
    SELECT asked.*, {now} AS now
    FROM unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
)
SELECT asked.id::text, finished.id::text, finished.kind, finished.queue, finished.tenant,
    finished.key, finished.state, finished.token, asked.now
FROM asked JOIN rowlock.finished AS finished ON finished.id = asked.id
UNION ALL
SELECT asked.id::text, finished.id::text, finished.kind, finished.queue, finished.tenant,
    finished.key, finished.state, finished.token, asked.now
FROM asked JOIN rowlock.finished AS finished
    ON finished.key_hold = -1
    AND coalesce(finished.tenant, '') = coalesce(asked.tenant, '')
    AND finished.kind = asked.kind
    AND finished.key = asked.key
UNION ALL
SELECT asked.id::text, held.holder::text, held.kind, held.queue, held.tenant, held.key,
    held.state, held.token, asked.now
FROM asked JOIN rowlock.key_hold AS held ON held.holder = asked.id AND held.until > asked.now
UNION ALL
SELECT asked.id::text, held.holder::text, held.kind, held.queue, held.tenant, held.key,
    held.state, held.token, asked.now
FROM asked JOIN rowlock.key_hold AS held
    ON held.key_until > asked.now
    AND coalesce(held.tenant, '') = coalesce(asked.tenant, '')
    AND held.kind = asked.kind
    AND held.key = asked.key

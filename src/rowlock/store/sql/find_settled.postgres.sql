-- Jobs that ended, but whose id or key still answers an enqueue: (asked id, its holder).
-- A statement of its own after the insert, which may have waited for that very end.
-- Uses finished_pkey, finished_key, key_hold_pkey, key_hold_key: by a probe for each asked,
-- whatever the planner thinks of the tables' sizes (that is what OFFSET 0 is for).
WITH asked AS MATERIALIZED (
    SELECT asked.*, {now} AS now
    FROM unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
)
SELECT asked.id::text, holder.id::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
        finished.state, finished.token
    FROM rowlock.finished AS finished
    WHERE finished.id = asked.id
    OFFSET 0
) AS holder
UNION ALL
SELECT asked.id::text, holder.id::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
        finished.state, finished.token
    FROM rowlock.finished AS finished
    WHERE finished.key_hold = -1
        AND coalesce(finished.tenant, '') = coalesce(asked.tenant, '')
        AND finished.kind = asked.kind
        AND finished.key = asked.key
    OFFSET 0
) AS holder
WHERE asked.key IS NOT NULL
UNION ALL
SELECT asked.id::text, holder.holder::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT held.*
    FROM rowlock.key_hold AS held
    WHERE held.holder = asked.id
    OFFSET 0
) AS holder
WHERE holder.until > asked.now
UNION ALL
SELECT asked.id::text, holder.holder::text, holder.kind, holder.queue, holder.tenant, holder.key,
    holder.state, holder.token, asked.now
FROM asked CROSS JOIN LATERAL (
    SELECT held.*
    FROM rowlock.key_hold AS held
    WHERE held.key_until IS NOT NULL
        AND coalesce(held.tenant, '') = coalesce(asked.tenant, '')
        AND held.kind = asked.kind
        AND held.key = asked.key
    OFFSET 0
) AS holder
WHERE asked.key IS NOT NULL AND holder.key_until > asked.now

-- Write down work on many jobs. Uses bulk_pkey.
INSERT INTO rowlock.bulk (
    id, created_at, updated_at, total, is_exact, actor, tenant, action, chosen, place, skipped_ids
)
SELECT :id::uuid, clock.now, clock.now, :total::bigint, :is_exact::boolean, :actor, :tenant,
    :action, :chosen, :place, '[]'
FROM (SELECT {now} AS now) AS clock

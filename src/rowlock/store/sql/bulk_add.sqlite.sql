-- Write down work on many jobs. Uses the primary key.
INSERT INTO rowlock_bulk (
    id, created_at, updated_at, total, is_exact, actor, tenant, action, chosen, place, skipped_ids
)
SELECT :id, clock.now, clock.now, :total, :is_exact, :actor, :tenant,
    :action, :chosen, :place, '[]'
FROM (SELECT {now} AS now) AS clock

-- Jobs that ended, but whose id or key still answers an enqueue: (asked id, its holder).
-- Uses the primary keys, finished_key, key_hold_key.
SELECT :id, finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
    finished.state, finished.token, {now}
FROM rowlock_finished AS finished
WHERE finished.id = :id
UNION ALL
SELECT :id, finished.id, finished.kind, finished.queue, finished.tenant, finished.key,
    finished.state, finished.token, {now}
FROM rowlock_finished AS finished
WHERE finished.key_hold = -1
    AND coalesce(finished.tenant, '') = coalesce(:tenant, '')
    AND finished.kind = :kind
    AND finished.key = :key
UNION ALL
SELECT :id, held.holder, held.kind, held.queue, held.tenant, held.key, held.state, held.token,
    {now}
FROM rowlock_key_hold AS held
WHERE held.holder = :id AND held.until > {now}
UNION ALL
SELECT :id, held.holder, held.kind, held.queue, held.tenant, held.key, held.state, held.token,
    {now}
FROM rowlock_key_hold AS held
WHERE held.key_until > {now}
    AND coalesce(held.tenant, '') = coalesce(:tenant, '')
    AND held.kind = :kind
    AND held.key = :key

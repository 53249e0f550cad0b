-- Write a new schedule, unless there is one of that name. Uses the primary key.
INSERT INTO rowlock.schedule (
    name, kind, queue, rank, tenant, key, key_hold, payload, max_attempts, tags, meta, policy,
    cron, timezone, missed, source, next_at
)
VALUES (
    :name, :kind, :queue, :rank, :tenant, :key, :key_hold, :payload, :max_attempts, :tags, :meta,
    :policy, :cron, :timezone, :missed, :source, :next_at
)
ON CONFLICT (name) DO NOTHING
RETURNING name

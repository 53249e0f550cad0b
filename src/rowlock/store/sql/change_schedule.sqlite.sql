-- Replace a schedule's definition; whether it is paused stays. Uses the primary key.
UPDATE rowlock_schedule
SET
    kind = :kind, queue = :queue, rank = :rank, tenant = :tenant, key = :key,
    key_hold = :key_hold, payload = :payload, max_attempts = :max_attempts, tags = :tags,
    meta = :meta, policy = :policy, cron = :cron, timezone = :timezone, missed = :missed,
    source = :source, next_at = :next_at
WHERE name = :name

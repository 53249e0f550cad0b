-- Extend a lease; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET lease_expires_at = {now} + :lease,
    beat_at = {now}
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id, token, cancel_requested

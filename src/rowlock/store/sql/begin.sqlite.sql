-- Mark a run as begun, before its handler is called; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET begun = 1
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id, token

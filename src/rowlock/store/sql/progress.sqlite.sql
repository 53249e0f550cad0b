-- Say how far a running job is; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET progress = :progress
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id

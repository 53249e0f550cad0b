-- Ask the worker of a running job to end it. Uses the primary key.
UPDATE rowlock_job
SET cancel_requested = 1
WHERE id = :id AND lease_expires_at IS NOT NULL
RETURNING id

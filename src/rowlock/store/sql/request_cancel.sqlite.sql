-- Ask the workers of running jobs to end them. Uses the primary key.
UPDATE rowlock_job
SET cancel_requested = 1
WHERE id IN (SELECT value FROM json_each(:ids)) AND lease_expires_at IS NOT NULL
RETURNING id

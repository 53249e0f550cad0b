-- Remove a job that nobody runs. Uses the primary key.
DELETE FROM rowlock_job
WHERE id = :id AND lease_expires_at IS NULL
RETURNING id

-- Remove jobs that nobody runs. Uses the primary key.
DELETE FROM rowlock_job
WHERE id IN (SELECT value FROM json_each(:ids)) AND lease_expires_at IS NULL
RETURNING id

-- Count lines onto a running job; fenced by token. Returns the number before.
UPDATE rowlock_job
SET log_lines = log_lines + :lines
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING log_lines - :lines

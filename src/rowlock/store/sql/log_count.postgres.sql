-- Count lines onto a running job; fenced by token. Returns the number before. Uses job_pkey.
UPDATE rowlock.job
SET log_lines = log_lines + :lines::integer
WHERE id = :id::uuid AND token = :token::bigint AND lease_expires_at IS NOT NULL
RETURNING log_lines - :lines::integer

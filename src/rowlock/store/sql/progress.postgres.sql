-- Say how far a running job is; fenced by token. Uses job_pkey.
UPDATE rowlock.job
SET progress = :progress
WHERE id = :id::uuid AND token = :token::bigint AND lease_expires_at IS NOT NULL
RETURNING id::text

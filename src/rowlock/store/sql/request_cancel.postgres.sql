-- Ask the worker of a running job to end it. Uses job_pkey.
UPDATE rowlock.job
SET cancel_requested = true
WHERE id = :id::uuid AND lease_expires_at IS NOT NULL
RETURNING id::text

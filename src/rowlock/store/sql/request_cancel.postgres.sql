-- Ask the workers of running jobs to end them. Uses job_pkey.
UPDATE rowlock.job
SET cancel_requested = true
WHERE id = ANY (:ids::uuid[]) AND lease_expires_at IS NOT NULL
RETURNING id::text

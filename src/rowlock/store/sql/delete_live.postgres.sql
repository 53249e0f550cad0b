-- Remove jobs that nobody runs. Uses job_pkey.
DELETE FROM rowlock.job
WHERE id = ANY (:ids::uuid[]) AND lease_expires_at IS NULL
RETURNING id::text

-- Mark runs as begun, before their handlers are called; fenced by token. Uses job_pkey.
UPDATE rowlock.job AS job
SET begun = true
FROM unnest(:id::uuid[], :token::bigint[]) AS run (id, token)
WHERE job.id = run.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = run.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text, job.token

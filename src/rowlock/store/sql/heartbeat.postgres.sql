-- Extend leases; fenced by token. Uses job_pkey.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
UPDATE rowlock.job AS job
SET lease_expires_at = clock.now + :lease::bigint,
    beat_at = clock.now
FROM clock, unnest(:id::uuid[], :token::bigint[]) AS held (id, token)
WHERE job.id = held.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = held.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text, job.token, job.cancel_requested

-- Put running jobs back into the queue; fenced by token. Uses job_pkey.
UPDATE rowlock.job AS job
SET run_at = back.run_at,
    attempt = back.attempt,
    crashes = back.crashes,
    losses = back.losses,
    interruptions = back.interruptions,
    errors = coalesce(back.errors, job.errors),
    lease_taken = back.taken,
    lease_expires_at = NULL,
    beat_at = NULL,
    worker = NULL,
    begun = false
FROM unnest(
    :id::uuid[], :token::bigint[], :taken::boolean[], :run_at::bigint[], :attempt::integer[],
    :crashes::integer[], :losses::smallint[], :interruptions::smallint[], :errors::text[]
) AS back (id, token, taken, run_at, attempt, crashes, losses, interruptions, errors)
WHERE job.id = back.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = back.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text

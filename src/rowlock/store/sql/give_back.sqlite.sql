-- Put a running job back into the queue; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET run_at = :run_at,
    attempt = :attempt,
    crashes = :crashes,
    losses = :losses,
    interruptions = :interruptions,
    errors = coalesce(:errors, errors),
    lease_taken = :taken,
    lease_expires_at = NULL,
    beat_at = NULL,
    worker = NULL,
    begun = 0
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id

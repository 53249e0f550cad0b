-- Give jobs that were enqueued by name the policy of the worker that knows their kind. Fenced.
UPDATE rowlock_job
SET policy = :policy,
    max_attempts = coalesce(max_attempts, :max_attempts)
WHERE id = :id AND token = :token
RETURNING id

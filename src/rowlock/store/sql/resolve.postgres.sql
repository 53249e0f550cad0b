-- Give jobs that were enqueued by name the policy of the worker that knows their kind. Fenced.
UPDATE rowlock.job AS job
SET policy = known.policy,
    max_attempts = coalesce(job.max_attempts, known.max_attempts)
FROM unnest(:id::uuid[], :token::bigint[], :policy::text[], :max_attempts::integer[])
    AS known (id, token, policy, max_attempts)
WHERE job.id = known.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = known.token
RETURNING job.id::text

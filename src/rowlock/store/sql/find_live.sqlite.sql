-- The live jobs that stand in the way of an enqueue, by id or by key. Uses the key, job_key.
SELECT :id, {job}, {now}
FROM rowlock_job AS job
WHERE job.id = :id
UNION ALL
SELECT :id, {job}, {now}
FROM rowlock_job AS job
WHERE coalesce(job.tenant, '') = coalesce(:tenant, '')
    AND job.kind = :kind
    AND job.key = :key
    AND job.id <> :id

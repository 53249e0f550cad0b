-- The live jobs that stand in the way of an enqueue, by id or by key. Uses job_pkey, job_key.
SELECT asked.id::text, {job}, clock.now
FROM (SELECT {now} AS now) AS clock,
    unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
    JOIN rowlock.job AS job ON job.id = asked.id
UNION ALL
SELECT asked.id::text, {job}, clock.now
FROM (SELECT {now} AS now) AS clock,
    unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
        AS asked (id, tenant, kind, key)
    JOIN rowlock.job AS job
        ON coalesce(job.tenant, '') = coalesce(asked.tenant, '')
        AND job.kind = asked.kind
        AND job.key = asked.key
WHERE job.id <> asked.id

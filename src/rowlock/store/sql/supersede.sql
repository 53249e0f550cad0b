-- name: take_keys (postgres)
-- Take the keys of jobs that are about to return, by rows that this transaction withdraws again.
-- Waits for a transaction that is about to take one of them, or to give it up. A row that is not
-- returned: its key is held. Uses job_key.
INSERT INTO rowlock.job (id, tenant, kind, key, queue, rank, payload, run_at, created_at)
SELECT asked.id, asked.tenant, asked.kind, asked.key, '', 0, '', 0, 0
FROM unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
    AS asked (id, tenant, kind, key)
ON CONFLICT DO NOTHING
RETURNING id::text

-- name: take_keys (sqlite)
-- Take the key of a job that is about to return, by a row that this transaction withdraws again.
-- Nothing is returned if its key is held. Uses job_key.
INSERT INTO rowlock_job (id, tenant, kind, key, queue, rank, payload, run_at, created_at)
VALUES (:id, :tenant, :kind, :key, '', 0, '', 0, 0)
ON CONFLICT DO NOTHING
RETURNING id

-- name: find_rival (postgres)
-- The live job that holds a key, or else the newest that runs without holding it: (requested id,
-- its id, when it was created, whether it holds the key). Uses job_key.
SELECT asked.id::text, rival.id::text, rival.created_at, rival.holds
FROM unnest(:id::uuid[], :tenant::text[], :kind::text[], :key::text[])
    AS asked (id, tenant, kind, key) CROSS JOIN LATERAL (
    SELECT job.id, job.created_at, {key_held job} AS holds
    FROM rowlock.job AS job
    WHERE coalesce(job.tenant, '') = coalesce(asked.tenant, '')
        AND job.kind = asked.kind
        AND job.key = asked.key
        AND job.id <> ALL (:own::uuid[])
    ORDER BY 3 DESC, job.created_at DESC, job.id DESC
    LIMIT 1
) AS rival

-- name: find_rival (sqlite)
-- The live job that holds a key, or else the newest that runs without holding it: (requested id,
-- its id, when it was created, whether it holds the key). Uses job_key.
SELECT :id, job.id, job.created_at, {key_held job} AS holds
FROM rowlock_job AS job
WHERE coalesce(job.tenant, '') = coalesce(:tenant, '')
    AND job.kind = :kind
    AND job.key = :key
    AND job.id NOT IN (SELECT value FROM json_each(:own))
ORDER BY holds DESC, job.created_at DESC, job.id DESC
LIMIT 1

-- Hold waiting jobs for a move, whoever else looks, until it is known where they are: the lease
-- does not expire. Skips locked rows. Uses job_pkey.
WITH picked AS MATERIALIZED (
    SELECT job.ctid
    FROM rowlock.{table} AS job
    WHERE job.id > :after::uuid AND job.lease_expires_at IS NULL
    ORDER BY job.id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE rowlock.{table} AS moved
SET token = moved.token + 1,
    worker = :worker,
    lease_expires_at = :for_ever::bigint,
    beat_at = :for_ever::bigint
WHERE moved.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked))
RETURNING to_json(moved)::text

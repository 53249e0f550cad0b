-- The jobs of one batch, as JSON. Uses job_lease.
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.lease_expires_at = :for_ever::bigint AND moved.worker = :worker

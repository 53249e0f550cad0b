-- The jobs of one batch, as JSON. Uses job_lease.
SELECT {object}
FROM rowlock_{table} AS moved
WHERE moved.lease_expires_at = :for_ever AND moved.worker = :worker

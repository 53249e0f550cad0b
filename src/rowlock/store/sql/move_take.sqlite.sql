-- Hold waiting jobs for a move, whoever else looks, until it is known where they are: the lease
-- does not expire. Uses the primary key.
UPDATE rowlock_{table}
SET token = token + 1,
    worker = :worker,
    lease_expires_at = :for_ever,
    beat_at = :for_ever
WHERE id IN (
    SELECT job.id
    FROM rowlock_{table} AS job
    WHERE job.id > :after AND job.lease_expires_at IS NULL
    ORDER BY job.id
    LIMIT :limit
)
RETURNING {own_object}

-- Lease the first due jobs of some tenants, of one queue and rank, in their common order.
-- Uses job_tenant_lane once a lane.
UPDATE rowlock_job
SET attempt = attempt + 1,
    token = token + 1,
    worker = :worker,
    started_at = {now},
    beat_at = {now},
    lease_expires_at = {now} + :lease,
    lease_taken = 0,
    begun = :begun
WHERE rowid IN (
    SELECT head.rowid
    FROM json_each(:kinds) AS lane JOIN json_each(:tenants) AS owner ON owner.key = lane.key
        CROSS JOIN rowlock_job AS head ON head.rowid IN (
        SELECT due.rowid
        FROM rowlock_job AS due
        WHERE due.tenant = owner.value AND due.queue = :queue AND due.rank = :rank
            AND due.kind = lane.value
            AND due.lease_expires_at IS NULL
            AND due.run_at <= {now}
        ORDER BY due.run_at, due.id
        LIMIT :limit
    )
    ORDER BY head.run_at, head.id
    LIMIT :limit
)
RETURNING {row}, {now}

-- Lease the first due jobs of one lane. Uses job_lane.
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
    SELECT due.rowid
    FROM rowlock_job AS due
    WHERE due.queue = :queue AND due.rank = :rank AND due.kind = :kind
        AND due.lease_expires_at IS NULL
        AND due.run_at <= {now}
        AND (due.run_at, due.id) >= (:floor_at, :floor_id)
    ORDER BY due.run_at, due.id
    LIMIT :limit
)
RETURNING {row}, {now}

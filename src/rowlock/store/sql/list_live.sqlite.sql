-- A page of live jobs, newest id first, of at most so many rows read. Uses the primary key.
SELECT {job}, {now}
FROM rowlock_job AS job
WHERE job.id < coalesce(:cursor, 'g')
    -- Not by a query of so many rows within this one: SQLite would read them all, to sort them.
    AND job.id >= coalesce(
        (
            SELECT floor.id
            FROM rowlock_job AS floor
            WHERE floor.id < coalesce(:cursor, 'g')
            ORDER BY floor.id DESC
            LIMIT 1 OFFSET :scan - 1
        ),
        ''
    )
    AND (
        :state IS NULL
        OR (:state = 'running') = (job.lease_expires_at IS NOT NULL)
        AND (
            job.lease_expires_at IS NOT NULL
            OR :state = CASE
                WHEN job.run_at <= {now} THEN 'ready'
                WHEN job.attempt = 0 THEN 'scheduled'
                ELSE 'retrying'
            END
        )
    )
    AND (:kind IS NULL OR job.kind = :kind)
    AND (:queue IS NULL OR job.queue = :queue)
    AND (:tenant IS NULL OR job.tenant = :tenant)
    AND (:key IS NULL OR job.key = :key)
    AND (:tag IS NULL OR :tag IN (SELECT value FROM json_each(job.tags)))
    AND (:error IS NULL OR instr(lower(job.errors), lower(:error)) > 0)
    AND (:since IS NULL OR job.created_at >= :since)
    AND (:until IS NULL OR job.created_at < :until)
ORDER BY job.id DESC
LIMIT :limit

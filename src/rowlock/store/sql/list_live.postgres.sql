-- A page of live jobs, newest id first, of at most so many rows read. Uses job_pkey.
SELECT {job}, clock.now
FROM (SELECT {now} AS now) AS clock, (
    SELECT *
    FROM rowlock.job
    WHERE id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY id DESC
    LIMIT :scan
) AS job
WHERE (
        :state::text IS NULL
        OR (:state::text = 'running') = (job.lease_expires_at IS NOT NULL)
        AND (
            job.lease_expires_at IS NOT NULL
            OR :state::text = CASE
                WHEN job.run_at <= clock.now THEN 'ready'
                WHEN job.attempt = 0 THEN 'scheduled'
                ELSE 'retrying'
            END
        )
    )
    AND (:kind::text IS NULL OR job.kind = :kind::text)
    AND (:queue::text IS NULL OR job.queue = :queue::text)
    AND (:tenant::text IS NULL OR job.tenant = :tenant::text)
    AND (:key::text IS NULL OR job.key = :key::text)
    AND (:tag::text IS NULL OR job.tags::jsonb ? :tag::text)
    AND (
        :error::text IS NULL
        OR position(
            lower(:error::text COLLATE "C") IN lower(job.errors COLLATE "C")
        ) > 0
    )
    AND (:since::bigint IS NULL OR job.created_at >= :since::bigint)
    AND (:until::bigint IS NULL OR job.created_at < :until::bigint)
ORDER BY job.id DESC
LIMIT :limit

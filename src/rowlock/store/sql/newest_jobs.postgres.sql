-- The newest jobs between two ids, live and ended. Uses job_pkey and finished_pkey.
SELECT newest.id::text, newest.queue, newest.kind, newest.tenant, newest.created_at
FROM (
    (
        SELECT job.id, job.queue, job.kind, job.tenant, job.created_at
        FROM rowlock.job AS job
        WHERE job.id > :low::uuid AND job.id < :high::uuid
        ORDER BY job.id DESC
        LIMIT :limit
    )
    UNION ALL
    (
        SELECT finished.id, finished.queue, finished.kind, finished.tenant, finished.created_at
        FROM rowlock.finished AS finished
        WHERE finished.id > :low::uuid AND finished.id < :high::uuid
        ORDER BY finished.id DESC
        LIMIT :limit
    )
) AS newest
ORDER BY newest.id

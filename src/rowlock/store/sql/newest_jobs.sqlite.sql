-- The newest jobs between two ids, live and ended. Uses the primary keys.
SELECT newest.id, newest.queue, newest.kind, newest.tenant, newest.created_at
FROM (
    SELECT * FROM (
        SELECT job.id, job.queue, job.kind, job.tenant, job.created_at
        FROM rowlock_job AS job
        WHERE job.id > :low AND job.id < :high
        ORDER BY job.id DESC
        LIMIT :limit
    )
    UNION ALL
    SELECT * FROM (
        SELECT finished.id, finished.queue, finished.kind, finished.tenant, finished.created_at
        FROM rowlock_finished AS finished
        WHERE finished.id > :low AND finished.id < :high
        ORDER BY finished.id DESC
        LIMIT :limit
    )
) AS newest
ORDER BY newest.id

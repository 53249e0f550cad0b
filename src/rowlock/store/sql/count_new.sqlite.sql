-- Jobs whose ids were made in a stretch of time, up to a cap, and the lowest of those ids. A job
-- that was deleted when it succeeded is still remembered. Uses the primary keys of three tables.
SELECT count(*), min(newest.id)
FROM (
    SELECT of_job.id FROM (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE job.id >= :low AND job.id < :high
        ORDER BY job.id DESC
        LIMIT :cap
    ) AS of_job
    UNION
    SELECT of_finished.id FROM (
        SELECT finished.id
        FROM rowlock_finished AS finished
        WHERE finished.id >= :low AND finished.id < :high
        ORDER BY finished.id DESC
        LIMIT :cap
    ) AS of_finished
    UNION
    SELECT of_key_hold.holder FROM (
        SELECT key_hold.holder
        FROM rowlock_key_hold AS key_hold
        WHERE key_hold.holder >= :low AND key_hold.holder < :high
        ORDER BY key_hold.holder DESC
        LIMIT :cap
    ) AS of_key_hold
    ORDER BY 1 DESC
    LIMIT :cap
) AS newest

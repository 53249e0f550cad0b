-- Jobs that a job's success enqueued, among those with ids of its time. Uses the primary keys.
SELECT * FROM (
    SELECT {job}, {now}
    FROM (
        SELECT *
        FROM rowlock_job
        WHERE id > :low AND id < :high
        ORDER BY id
        LIMIT :scan
    ) AS job
    WHERE instr(job.meta, :mark) > 0
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT {finished}, {now}
    FROM (
        SELECT *
        FROM rowlock_finished
        WHERE id > :low AND id < :high
        ORDER BY id
        LIMIT :scan
    ) AS finished
    WHERE instr(finished.meta, :mark) > 0
    LIMIT :limit
)

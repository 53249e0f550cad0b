-- Jobs that a job's success enqueued, among those with ids of its time. Uses job_pkey and
-- finished_pkey.
(
    SELECT {job}, {now}
    FROM (
        SELECT *
        FROM rowlock.job
        WHERE id > :low::uuid AND id < :high::uuid
        ORDER BY id
        LIMIT :scan
    ) AS job
    WHERE position(:mark::text IN job.meta) > 0
    LIMIT :limit
)
UNION ALL
(
    SELECT {finished}, {now}
    FROM (
        SELECT *
        FROM rowlock.finished
        WHERE id > :low::uuid AND id < :high::uuid
        ORDER BY id
        LIMIT :scan
    ) AS finished
    WHERE position(:mark::text IN finished.meta) > 0
    LIMIT :limit
)

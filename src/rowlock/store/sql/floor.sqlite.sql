-- Where a page of a table stopped reading; no row if it came to the end. Uses the primary keys.
SELECT *
FROM (
    SELECT 'job', id, NULL
    FROM rowlock_job
    WHERE :live AND id < coalesce(:cursor, 'g')
    ORDER BY id DESC
    LIMIT 1 OFFSET :scan - 1
)
UNION ALL
SELECT *
FROM (
    SELECT 'finished', id, NULL
    FROM rowlock_finished
    WHERE :finished AND id < coalesce(:cursor, 'g')
    ORDER BY id DESC
    LIMIT 1 OFFSET :scan - 1
)
UNION ALL
SELECT *
FROM (
    SELECT 'dead', id, finished_at
    FROM rowlock_finished
    WHERE :dead
        AND state = 'dead'
        AND (finished_at, id) < (:cursor_finished, coalesce(:cursor, 'g'))
    ORDER BY finished_at DESC, id DESC
    LIMIT 1 OFFSET :scan - 1
)

-- Where a page of a table stopped reading; no row if it came to the end. Uses the primary keys.
-- Ordered by the column, by its whole name: `id` alone would be the text that is selected, which
-- has no index, and the whole table would be sorted.
(
    SELECT 'job', job.id::text, NULL::bigint
    FROM rowlock.job AS job
    WHERE :live::boolean
        AND job.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY job.id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)
UNION ALL
(
    SELECT 'finished', finished.id::text, NULL::bigint
    FROM rowlock.finished AS finished
    WHERE :finished::boolean
        AND finished.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY finished.id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)
UNION ALL
(
    SELECT 'dead', finished.id::text, finished.finished_at
    FROM rowlock.finished AS finished
    WHERE :dead::boolean
        AND finished.state = 'dead'
        AND (finished.finished_at, finished.id) < (
            :cursor_finished::bigint,
            coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        )
    ORDER BY finished.finished_at DESC, finished.id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)

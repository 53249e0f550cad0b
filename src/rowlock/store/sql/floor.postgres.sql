-- Where a page of a table stopped reading; no row if it came to the end. Uses the primary keys.
(
    SELECT 'job', id::text, NULL::bigint
    FROM rowlock.job
    WHERE :live::boolean AND id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)
UNION ALL
(
    SELECT 'finished', id::text, NULL::bigint
    FROM rowlock.finished
    WHERE :finished::boolean
        AND id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)
UNION ALL
(
    SELECT 'dead', id::text, finished_at
    FROM rowlock.finished
    WHERE :dead::boolean
        AND state = 'dead'
        AND (finished_at, id) < (
            :cursor_finished::bigint,
            coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        )
    ORDER BY finished_at DESC, id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)

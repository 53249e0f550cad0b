-- Remove records of work on many jobs that has ended long ago. A small table, read as a whole.
DELETE FROM rowlock_bulk
WHERE id IN (
    SELECT id
    FROM rowlock_bulk
    WHERE finished_at < {now} - :bulk_kept
    ORDER BY id
    LIMIT :limit
)
RETURNING id

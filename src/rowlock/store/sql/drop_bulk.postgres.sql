-- Remove records of work on many jobs that has ended long ago. A small table, read as a whole.
DELETE FROM rowlock.bulk
WHERE id IN (
    SELECT id
    FROM rowlock.bulk
    WHERE finished_at < (SELECT {now}) - :bulk_kept::bigint
    ORDER BY id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING id::text

-- The ids of work that has not ended, oldest first. Uses bulk_running.
SELECT bulk.id::text
FROM rowlock.bulk AS bulk
WHERE bulk.finished_at IS NULL
ORDER BY bulk.id
LIMIT :limit

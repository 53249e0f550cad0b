-- Remove a schedule; its jobs stay. Uses the primary key.
DELETE FROM rowlock.schedule
WHERE name = :name
RETURNING name

-- Remove a schedule; its jobs stay. Uses the primary key.
DELETE FROM rowlock_schedule
WHERE name = :name
RETURNING name

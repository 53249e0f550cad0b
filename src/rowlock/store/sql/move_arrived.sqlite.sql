-- Remove schedules that were put off and are in the other database. Uses the primary key.
DELETE FROM rowlock_schedule
WHERE name IN (SELECT value FROM json_each(:names)) AND next_at >= :beyond

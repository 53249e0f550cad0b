-- Remove schedules that came from code and are gone from it. Walks the table: it is small.
DELETE FROM rowlock_schedule
WHERE source = 'code'
    AND name NOT IN (SELECT value FROM json_each(:names))
    AND (:owns_all OR kind IN (SELECT value FROM json_each(:kinds)))
RETURNING name

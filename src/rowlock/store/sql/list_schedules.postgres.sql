-- Schedules by name, those after a name. Uses the primary key.
SELECT {schedule}
FROM rowlock.schedule AS schedule
WHERE schedule.name > :after
ORDER BY schedule.name
LIMIT :limit

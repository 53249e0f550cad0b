-- Schedules by name, those after a name, of one tenant if one is named. Uses the primary key.
SELECT {schedule}
FROM rowlock_schedule AS schedule
WHERE schedule.name > :after
    AND (:tenant IS NULL OR schedule.tenant = :tenant)
ORDER BY schedule.name
LIMIT :limit

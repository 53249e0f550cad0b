-- Schedules by name, those after a name, of one tenant if one is named. Uses the primary key.
SELECT {schedule}
FROM rowlock.schedule AS schedule
WHERE schedule.name > :after
    AND (:tenant::text IS NULL OR schedule.tenant = :tenant::text)
ORDER BY schedule.name
LIMIT :limit

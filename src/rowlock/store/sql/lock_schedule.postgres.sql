-- A schedule, held until the transaction ends. Uses the primary key.
SELECT {schedule}, {now}
FROM rowlock.schedule AS schedule
WHERE schedule.name = :name
FOR UPDATE OF schedule

-- The schedules that came from code, held until the transaction ends, in one order.
SELECT schedule.name
FROM rowlock_schedule AS schedule
WHERE schedule.source = 'code'
ORDER BY schedule.name

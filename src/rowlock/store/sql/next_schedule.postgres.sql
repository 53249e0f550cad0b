-- How long until the next tick, of those later than the ones just fired. Uses schedule_due.
SELECT schedule.next_at - {now}
FROM rowlock.schedule AS schedule
WHERE NOT schedule.is_paused
    AND schedule.next_at > :since
ORDER BY schedule.next_at
LIMIT 1

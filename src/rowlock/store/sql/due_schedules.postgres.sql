-- Schedules with a due tick that nobody else is firing, the oldest first. Uses schedule_due.
SELECT {schedule}
FROM rowlock.schedule AS schedule
WHERE NOT schedule.is_paused
    AND schedule.next_at <= :until
    AND (schedule.next_at, schedule.name) > (:after_at, :after_name)
ORDER BY schedule.next_at, schedule.name
LIMIT :limit
FOR UPDATE OF schedule SKIP LOCKED

-- Pause a schedule, or resume it from a new time on. Uses the primary key.
UPDATE rowlock_schedule
SET is_paused = :is_paused, next_at = :next_at
WHERE name = :name

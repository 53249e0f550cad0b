-- Let schedules that were put off go on here.
UPDATE rowlock_schedule
SET next_at = next_at - :beyond
WHERE next_at >= :beyond
RETURNING name

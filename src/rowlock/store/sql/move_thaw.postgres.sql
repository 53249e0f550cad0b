-- Let schedules that were put off go on here.
UPDATE rowlock.schedule
SET next_at = next_at - :beyond::bigint
WHERE next_at >= :beyond::bigint
RETURNING name

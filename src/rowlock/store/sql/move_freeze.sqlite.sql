-- Put off all schedules beyond any time, so that none fires while it is in two places.
UPDATE rowlock_schedule
SET next_at = next_at + :beyond
WHERE next_at < :beyond
RETURNING name

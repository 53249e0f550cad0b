-- Put off all schedules beyond any time, so that none fires while it is in two places.
UPDATE rowlock.schedule
SET next_at = next_at + :beyond::bigint
WHERE next_at < :beyond::bigint
RETURNING name

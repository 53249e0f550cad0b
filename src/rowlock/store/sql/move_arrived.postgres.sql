-- Remove schedules that were put off and are in the other database. Uses schedule_pkey.
DELETE FROM rowlock.schedule
WHERE name = ANY (:names::text[]) AND next_at >= :beyond::bigint

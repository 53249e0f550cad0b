-- The time, and the last row of events. Uses the primary key.
SELECT {now}, coalesce((SELECT max(event.id) FROM rowlock_event AS event), 0)

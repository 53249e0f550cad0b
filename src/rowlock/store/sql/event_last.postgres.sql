-- The time, and the last row of events. Uses event_pkey.
SELECT {now}, coalesce((SELECT max(event.id) FROM rowlock.event AS event), 0)

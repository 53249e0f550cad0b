-- What was told after a row, in its order. Uses the primary key.
SELECT event.id, event.at, event.events
FROM rowlock_event AS event
WHERE event.id > :after
ORDER BY event.id
LIMIT :limit

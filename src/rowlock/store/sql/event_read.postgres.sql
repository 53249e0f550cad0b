-- What was told after a row, in its order. Uses event_pkey.
SELECT event.id, event.at, event.events
FROM rowlock.event AS event
WHERE event.id > :after::bigint
ORDER BY event.id
LIMIT :limit

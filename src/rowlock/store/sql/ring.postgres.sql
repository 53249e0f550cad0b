-- Wake those who listen; one notification a queue.
SELECT pg_notify(:channel, queue)
FROM unnest(:queues::text[]) AS rung (queue)

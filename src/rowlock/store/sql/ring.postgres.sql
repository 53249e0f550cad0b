-- Wake those who listen; one notification a queue. Not waited for on disk: a ring that a crash
-- swallows costs time, never a job, and this way a job starts one sync sooner.
WITH unhurried AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true) AS unhurried
)
SELECT pg_notify(:channel, rung.queue)
FROM unhurried, unnest(:queues::text[]) AS rung (queue)

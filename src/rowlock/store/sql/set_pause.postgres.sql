-- Pause or resume a queue.
INSERT INTO rowlock.queue (name, is_paused)
VALUES (:queue, :is_paused)
ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused

-- Note how much waits in each queue; of several who look at once, one counts. Uses the primary key.
INSERT INTO rowlock_depth (at, queue, ready, scheduled, running, retrying, oldest_us)
VALUES (:at, :queue, :ready, :scheduled, :running, :retrying, :oldest_us)
ON CONFLICT (at, queue) DO NOTHING

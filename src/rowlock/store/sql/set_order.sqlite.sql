-- Order a queue's retries by their age, or by the time they are due.
INSERT INTO rowlock_queue (name, by_age)
VALUES (:queue, :by_age)
ON CONFLICT (name) DO UPDATE SET by_age = excluded.by_age

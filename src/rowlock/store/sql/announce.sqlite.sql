-- A worker says that it is there, or still there.
INSERT INTO rowlock_worker (id, started_at, beat_at, pid, host, queues, kinds)
VALUES (:worker, {now}, {now}, :pid, :host, :queues_json, :kinds_json)
ON CONFLICT (id) DO UPDATE
SET beat_at = excluded.beat_at, queues = excluded.queues, kinds = excluded.kinds

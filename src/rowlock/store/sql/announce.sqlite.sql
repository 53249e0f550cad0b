-- A worker says that it is there, or still there.
INSERT INTO rowlock_worker (id, started_at, beat_at, pid, host, queues, kinds, vitals)
VALUES (:worker, {now}, {now}, :pid, :host, :queues_json, :kinds_json, :vitals)
ON CONFLICT (id) DO UPDATE
SET beat_at = excluded.beat_at, queues = excluded.queues, kinds = excluded.kinds,
    vitals = excluded.vitals

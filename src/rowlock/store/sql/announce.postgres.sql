-- A worker says that it is there, or still there.
INSERT INTO rowlock.worker (id, started_at, beat_at, pid, host, queues, kinds, vitals)
SELECT :worker, clock.now, clock.now, :pid::integer, :host, :queues_json, :kinds_json, :vitals::text
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO UPDATE
SET beat_at = excluded.beat_at, queues = excluded.queues, kinds = excluded.kinds,
    vitals = excluded.vitals

-- Workers that announced themselves.
SELECT worker.id, worker.started_at, worker.beat_at, worker.pid, worker.host, worker.queues,
    worker.kinds, worker.vitals
FROM rowlock_worker AS worker
ORDER BY worker.id

-- Forget workers that were not heard of for long; their leases are on the jobs.
DELETE FROM rowlock.worker
WHERE beat_at < (SELECT {now}) - :silence::bigint

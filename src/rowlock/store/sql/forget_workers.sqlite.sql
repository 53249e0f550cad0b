-- Forget workers that were not heard of for long; their leases are on the jobs.
DELETE FROM rowlock_worker
WHERE beat_at < {now} - :silence

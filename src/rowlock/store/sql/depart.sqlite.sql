-- A worker says goodbye.
DELETE FROM rowlock_worker
WHERE id = :worker

-- A worker says goodbye.
DELETE FROM rowlock.worker
WHERE id = :worker

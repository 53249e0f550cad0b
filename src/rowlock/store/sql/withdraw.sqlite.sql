-- Take back jobs inserted in this transaction, which nobody else has seen. Uses the primary key.
DELETE FROM rowlock_job
WHERE id IN (SELECT value FROM json_each(:ids))

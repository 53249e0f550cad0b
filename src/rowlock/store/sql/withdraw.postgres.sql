-- Take back jobs inserted in this transaction, which nobody else has seen. Uses job_pkey.
DELETE FROM rowlock.job
WHERE id = ANY (:ids::uuid[])

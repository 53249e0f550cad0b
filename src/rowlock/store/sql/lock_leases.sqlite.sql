-- Live jobs by id, held until the transaction ends, in one order. Uses the primary key.
SELECT {held}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.id IN (SELECT value FROM json_each(:ids))
ORDER BY job.id

-- Live jobs by id, held until the transaction ends, in one order. Uses job_pkey.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
ORDER BY job.id
FOR UPDATE OF job

-- Finished jobs by id, held until the transaction ends, in one order. Uses finished_pkey.
SELECT {ended}, {now}
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
ORDER BY finished.id
FOR UPDATE OF finished

-- A finished job, held until the transaction ends. Uses finished_pkey.
SELECT {finished}, {now}
FROM rowlock.finished AS finished
WHERE finished.id = :id::uuid
FOR UPDATE OF finished

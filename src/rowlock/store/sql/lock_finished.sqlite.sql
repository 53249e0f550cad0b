-- Finished jobs by id, held until the transaction ends, in one order. Uses the primary key.
SELECT {ended}, {now}
FROM rowlock_finished AS finished
WHERE finished.id IN (SELECT value FROM json_each(:ids))
ORDER BY finished.id

-- A finished job. Uses the primary key.
SELECT {finished}, {now}
FROM rowlock_finished AS finished
WHERE finished.id = :id

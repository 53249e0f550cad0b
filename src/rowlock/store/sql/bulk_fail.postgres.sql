-- Give up work where it stands, and say why. Uses bulk_pkey.
UPDATE rowlock.bulk
SET finished_at = clock.now,
    problem = :problem
FROM (SELECT {now} AS now) AS clock
WHERE id = :id::uuid AND finished_at IS NULL

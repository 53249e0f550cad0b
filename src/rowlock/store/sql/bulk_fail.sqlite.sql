-- Give up work where it stands, and say why. Uses the primary key.
UPDATE rowlock_bulk
SET finished_at = {now},
    problem = :problem
WHERE id = :id AND finished_at IS NULL

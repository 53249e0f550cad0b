-- Claim due ticks: move on from the old time, unless another has done so. Uses the primary key.
UPDATE rowlock_schedule
SET next_at = :next_at
WHERE name = :name
    AND next_at = :expected_at
RETURNING name

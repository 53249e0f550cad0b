-- Claim due ticks: move on from the old time, unless another has done so. Uses the primary key.
UPDATE rowlock.schedule AS schedule
SET next_at = fresh.next_at
FROM unnest(:name::text[], :expected_at::bigint[], :next_at::bigint[])
    AS fresh (name, expected_at, next_at)
WHERE schedule.name = fresh.name
    AND schedule.next_at = fresh.expected_at
RETURNING schedule.name

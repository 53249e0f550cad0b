-- Remove parts of sums that were folded. Uses the primary key.
DELETE FROM rowlock_history
WHERE part = :part AND queue = :queue AND kind = :kind

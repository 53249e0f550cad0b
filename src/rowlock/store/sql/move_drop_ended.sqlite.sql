-- Remove jobs that ended and are in another database now; one that was retried since and ended
-- again has another token. Uses the primary key.
DELETE FROM rowlock_finished
WHERE id = :id AND token = :token
RETURNING id

-- Remove jobs that ended and are in another database now; one that was retried since and ended
-- again has another token. Uses finished_pkey.
DELETE FROM rowlock.finished AS finished
USING unnest(:id::uuid[], :token::bigint[]) AS moved (id, token)
WHERE finished.id = moved.id AND finished.token = moved.token
RETURNING finished.id::text

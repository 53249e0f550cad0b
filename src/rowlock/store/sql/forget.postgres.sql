-- Remove finished jobs, and what their keys hold. Uses finished_pkey, key_hold_pkey.
WITH free AS (
    DELETE FROM rowlock.key_hold
    WHERE holder = ANY (:ids::uuid[])
)
DELETE FROM rowlock.finished
WHERE id = ANY (:ids::uuid[])
RETURNING id::text

-- Remove finished jobs; keys that outlive their row stay held. Uses finished_pkey.
DELETE FROM rowlock.finished
WHERE id = ANY (:ids::uuid[])
RETURNING id::text

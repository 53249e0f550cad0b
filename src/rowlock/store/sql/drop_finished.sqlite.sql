-- Remove finished jobs; keys that outlive their row stay held. Uses the primary key.
DELETE FROM rowlock_finished
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id

-- Remove finished jobs, and what their keys hold. Uses the primary keys.
DELETE FROM rowlock_key_hold
WHERE holder IN (SELECT value FROM json_each(:ids));

DELETE FROM rowlock_finished
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id

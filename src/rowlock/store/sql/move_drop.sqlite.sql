-- Remove rows that are in another database now. Uses the primary key.
DELETE FROM rowlock_{table}
WHERE {own_key} IN (SELECT value FROM json_each(:keys))

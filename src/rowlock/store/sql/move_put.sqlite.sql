-- Insert rows that another database has given as JSON; those that are there already are left out.
-- (WHERE true: without it SQLite takes ON for a part of the query.)
INSERT INTO rowlock_{table} ({columns})
SELECT {fields}
FROM json_each(:moved)
WHERE true
ON CONFLICT DO NOTHING
RETURNING {own_key}

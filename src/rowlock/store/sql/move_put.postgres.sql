-- Insert rows that another database has given as JSON; those that are there already are left out.
INSERT INTO rowlock.{table} AS moved ({columns})
SELECT {columns}
FROM json_populate_recordset(NULL::rowlock.{table}, :moved::json)
ON CONFLICT DO NOTHING
RETURNING {key}::text

-- A page of a table's rows in the order of its key, each as JSON with all its columns.
SELECT {key}::text, to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE {key} > :after::{key_type}
ORDER BY {key}
LIMIT :limit

-- A page of a table's rows in the order of its key, each as JSON with all its columns.
SELECT {key}, {object}
FROM rowlock_{table} AS moved
WHERE {key} > :after
ORDER BY {key}
LIMIT :limit

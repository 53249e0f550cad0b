-- Remove rows that are in another database now. Uses the primary key.
DELETE FROM rowlock.{table} AS moved
WHERE {key} = ANY (:keys::{key_type}[])

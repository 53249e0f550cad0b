-- Where the server's write-ahead log ends, in bytes.
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint

-- Whether this database was ever migrated.
SELECT to_regclass(:table) IS NOT NULL

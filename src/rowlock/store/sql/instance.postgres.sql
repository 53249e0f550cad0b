-- The id of this database. A copy made within the server has our row too, but another oid.
SELECT instance.id::text || '/' || here.oid::text
FROM rowlock.instance AS instance
    JOIN pg_catalog.pg_database AS here ON here.datname = pg_catalog.current_database()

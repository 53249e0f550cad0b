-- Whether this role may create a schema, who it is, and where.
SELECT has_database_privilege(current_database(), 'CREATE'), current_user, current_database()

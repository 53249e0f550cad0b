-- Write a token; its secret is not among the values.
INSERT INTO rowlock_token (id, created_at, expires_at, digest, name, scopes, tenant)
VALUES (:id, {now}, {now} + :lifetime, :digest, :name, :scopes_json, :tenant)
ON CONFLICT (id) DO NOTHING

-- Write a token; its secret is not among the values.
INSERT INTO rowlock.token (id, created_at, expires_at, digest, name, scopes, tenant)
SELECT :id, clock.now, clock.now + :lifetime::bigint, :digest, :name, :scopes_json, :tenant
FROM (SELECT {now} AS now) AS clock
ON CONFLICT (id) DO NOTHING

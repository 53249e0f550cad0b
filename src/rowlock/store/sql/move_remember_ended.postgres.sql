-- As move_remember, for jobs that have ended. Uses finished_pkey.
INSERT INTO rowlock.key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT finished.id, clock.now + :remember::bigint, finished.token, finished.lease_taken,
    finished.state, finished.kind, finished.queue, finished.tenant, finished.key
FROM unnest(:id::uuid[], :token::bigint[]) AS moved (id, token)
    JOIN rowlock.finished AS finished ON finished.id = moved.id AND finished.token = moved.token
    CROSS JOIN (SELECT {now} AS now) AS clock
WHERE finished.created_at > clock.now - :remember::bigint
ON CONFLICT (holder) DO NOTHING

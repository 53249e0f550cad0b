-- As move_remember, for jobs that have ended. Uses the primary key.
INSERT INTO rowlock_key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT finished.id, {now} + :remember, finished.token, finished.lease_taken, finished.state,
    finished.kind, finished.queue, finished.tenant, finished.key
FROM rowlock_finished AS finished
WHERE finished.id = :id AND finished.token = :token
    AND finished.created_at > {now} - :remember
ON CONFLICT (holder) DO NOTHING

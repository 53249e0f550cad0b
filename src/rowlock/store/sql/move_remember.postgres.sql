-- Remember for a while the ids of new jobs that are about to go to the other database, so that an
-- enqueue that is sent again finds them. Uses job_lease.
INSERT INTO rowlock.key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT job.id, clock.now + :remember::bigint, job.token, job.lease_taken, 'ready', job.kind,
    job.queue, job.tenant, job.key
FROM rowlock.job AS job CROSS JOIN (SELECT {now} AS now) AS clock
WHERE job.lease_expires_at = :for_ever::bigint AND job.worker = :worker
    AND job.created_at > clock.now - :remember::bigint
ON CONFLICT (holder) DO NOTHING

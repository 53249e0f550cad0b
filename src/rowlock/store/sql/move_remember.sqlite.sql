-- Remember for a while the ids of new jobs that are about to go to the other database, so that an
-- enqueue that is sent again finds them. Uses job_lease.
INSERT INTO rowlock_key_hold (holder, until, token, lease_taken, state, kind, queue, tenant, key)
SELECT job.id, {now} + :remember, job.token, job.lease_taken, 'ready', job.kind, job.queue,
    job.tenant, job.key
FROM rowlock_job AS job
WHERE job.lease_expires_at = :for_ever AND job.worker = :worker
    AND job.created_at > {now} - :remember
ON CONFLICT (holder) DO NOTHING

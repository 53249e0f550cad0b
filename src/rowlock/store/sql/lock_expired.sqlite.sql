-- Running jobs whose lease expired so long ago, the longest first. Uses job_lease.
-- After a step of the clock, those last extended before it wait for one beat: `ClockWatch`.
SELECT {held}, job.lease_taken, {now}
FROM rowlock_job AS job
WHERE job.lease_expires_at <= {now} - :older_than
    AND (job.beat_at > :stepped_at OR job.lease_expires_at - job.beat_at <= 3 * :waited)
    AND (:queues IS NULL OR job.queue IN (SELECT value FROM json_each(:queues)))
ORDER BY job.lease_expires_at, job.id
LIMIT :limit

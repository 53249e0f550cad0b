-- Write down the last job of schedules. Uses the primary key.
UPDATE rowlock.schedule AS schedule
SET last_at = clock.now, last_job_id = fresh.job_id
FROM (SELECT {now} AS now) AS clock,
    unnest(:name::text[], :job_id::uuid[]) AS fresh (name, job_id)
WHERE schedule.name = fresh.name

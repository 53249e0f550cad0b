-- Write down the last job of schedules. Uses the primary key.
UPDATE rowlock_schedule
SET last_at = {now}, last_job_id = :job_id
WHERE name = :name

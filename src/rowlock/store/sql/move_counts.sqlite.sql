-- How many jobs are live, and how many have ended. Reads them all.
SELECT (SELECT count(*) FROM rowlock_job), (SELECT count(*) FROM rowlock_finished)

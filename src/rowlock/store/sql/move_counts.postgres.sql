-- How many jobs are live, and how many have ended. Reads them all.
SELECT (SELECT count(*) FROM rowlock.job), (SELECT count(*) FROM rowlock.finished)

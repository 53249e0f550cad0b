-- Which code works on a schema: a migration says the newest one that code must know; NULL is
-- itself.
-- So what only adds can be applied while workers of the last release run.

ALTER TABLE rowlock.migration ADD COLUMN needs integer;

-- Which code works on a schema: the newest migration that it must know; NULL is that one itself.
-- So what only adds can be applied while workers of the last release run.

ALTER TABLE rowlock_migration ADD COLUMN needs integer;

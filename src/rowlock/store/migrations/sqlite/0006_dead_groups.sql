-- Dead jobs by what they died of. Those that died before have no fingerprint, and are in no group.

ALTER TABLE rowlock_finished ADD COLUMN fingerprint text;

CREATE INDEX rowlock_finished_fingerprint ON rowlock_finished (fingerprint, finished_at, id)
    WHERE state = 'dead' AND fingerprint IS NOT NULL;

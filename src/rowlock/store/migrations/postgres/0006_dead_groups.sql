-- Dead jobs by what they died of. Those that died before have no fingerprint, and are in no group.

ALTER TABLE rowlock.finished ADD COLUMN fingerprint text COLLATE "C";

CREATE INDEX finished_fingerprint ON rowlock.finished (fingerprint, finished_at, id)
    WHERE state = 'dead' AND fingerprint IS NOT NULL;

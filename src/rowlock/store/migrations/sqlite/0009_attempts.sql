-- What is known of a run that nobody has settled. `begun`: a committed write says that its handler
-- was called, or was about to be. `losses`: leases lost in a row; `interruptions`: runs that left a
-- trace but were not counted as attempts.

ALTER TABLE rowlock_job ADD COLUMN begun integer NOT NULL DEFAULT 0;
ALTER TABLE rowlock_job ADD COLUMN losses integer NOT NULL DEFAULT 0;
ALTER TABLE rowlock_job ADD COLUMN interruptions integer NOT NULL DEFAULT 0;

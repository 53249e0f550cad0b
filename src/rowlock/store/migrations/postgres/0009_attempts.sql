-- What is known of a run that nobody has settled. `begun`: a committed write says that its handler
-- was called, or was about to be. `losses`: leases lost in a row; `interruptions`: runs that left a
-- trace but were not counted as attempts.

ALTER TABLE rowlock.job
    ADD COLUMN begun boolean NOT NULL DEFAULT false,
    ADD COLUMN losses smallint NOT NULL DEFAULT 0,
    ADD COLUMN interruptions smallint NOT NULL DEFAULT 0;

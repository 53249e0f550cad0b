-- What a worker tells of itself: how many slots it has, its memory, leases that it lost.

ALTER TABLE rowlock_worker ADD COLUMN vitals text;

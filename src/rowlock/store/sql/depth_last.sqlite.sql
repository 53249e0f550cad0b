-- The time, and whether this minute has its sample of the queues. Uses the primary key.
SELECT {now}, EXISTS (
        SELECT 1 FROM rowlock_depth AS depth WHERE depth.at >= {now} / 60000000 * 60000000
    )

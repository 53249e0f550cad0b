-- The time, and whether this minute has its sample of the queues. Uses depth_pkey.
SELECT clock.now, EXISTS (
        SELECT 1 FROM rowlock.depth AS depth WHERE depth.at >= clock.now / 60000000 * 60000000
    )
FROM (SELECT {now} AS now) AS clock

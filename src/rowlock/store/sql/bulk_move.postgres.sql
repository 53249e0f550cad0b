-- Note a step of work that this transaction holds. Uses bulk_pkey.
UPDATE rowlock.bulk
SET updated_at = clock.now,
    finished_at = CASE WHEN :is_over::boolean THEN clock.now END,
    done = done + :done::bigint,
    skipped = skipped + :skipped::bigint,
    skipped_ids = :skipped_ids,
    place = :place
FROM (SELECT {now} AS now) AS clock
WHERE id = :id::uuid

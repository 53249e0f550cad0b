-- Note a step of work that this transaction holds. Uses the primary key.
UPDATE rowlock_bulk
SET updated_at = {now},
    finished_at = CASE WHEN :is_over THEN {now} END,
    done = done + :done,
    skipped = skipped + :skipped,
    skipped_ids = :skipped_ids,
    place = :place
WHERE id = :id

-- Work that has not ended, and its place, held until the transaction ends; nothing if it is held.
-- Uses the primary key.
SELECT bulk.id, bulk.created_at, bulk.updated_at, bulk.finished_at, bulk.action, bulk.chosen,
    bulk.actor, bulk.tenant, bulk.total, bulk.is_exact, bulk.done, bulk.skipped, bulk.skipped_ids,
    bulk.problem, bulk.place
FROM rowlock_bulk AS bulk
WHERE bulk.id = :id AND bulk.finished_at IS NULL

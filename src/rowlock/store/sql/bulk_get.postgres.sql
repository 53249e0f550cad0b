-- Work on many jobs, as far as it is. Uses bulk_pkey.
SELECT bulk.id::text, bulk.created_at, bulk.updated_at, bulk.finished_at, bulk.action, bulk.chosen,
    bulk.actor, bulk.tenant, bulk.total, bulk.is_exact, bulk.done, bulk.skipped, bulk.skipped_ids,
    bulk.problem
FROM rowlock.bulk AS bulk
WHERE bulk.id = :id::uuid

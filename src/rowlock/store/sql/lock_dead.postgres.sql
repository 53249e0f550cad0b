-- Dead jobs that fit, oldest failure first, after a cursor and up to a time. Uses finished_dead.
SELECT finished.id::text, finished.finished_at
FROM rowlock.finished AS finished
WHERE finished.state = 'dead'
    AND finished.finished_at <= :until_finished::bigint
    AND (finished.finished_at, finished.id) > (:after::bigint, :after_id::uuid)
    AND (:kind::text IS NULL OR finished.kind = :kind::text)
    AND (:queue::text IS NULL OR finished.queue = :queue::text)
    AND (:tenant::text IS NULL OR finished.tenant = :tenant::text)
    AND (:key::text IS NULL OR finished.key = :key::text)
    AND (:tag::text IS NULL OR finished.tags::jsonb ? :tag::text)
    AND (:since::bigint IS NULL OR finished.created_at >= :since::bigint)
    AND (:until::bigint IS NULL OR finished.created_at < :until::bigint)
ORDER BY finished.finished_at, finished.id
LIMIT :limit
FOR UPDATE OF finished SKIP LOCKED

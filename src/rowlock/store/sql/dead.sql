-- name: count_dead
-- How many dead jobs there are, up to a bound. Uses finished_dead.
SELECT count(*)
FROM (
    SELECT 1
    FROM rowlock.finished AS finished
    WHERE finished.state = 'dead'
    LIMIT :cap
) AS counted

-- name: dead_groups
-- The fingerprints of dead jobs: the number of each up to a bound, the first and the last failure,
-- and the last job. A loose scan: one probe per group. Uses finished_fingerprint.
WITH RECURSIVE marks (fingerprint, number) AS (
    SELECT * FROM (
        SELECT finished.fingerprint, 1
        FROM rowlock.finished AS finished
        WHERE finished.state = 'dead' AND finished.fingerprint IS NOT NULL
        ORDER BY finished.fingerprint
        LIMIT 1
    ) AS head
    UNION ALL
    SELECT (
            SELECT finished.fingerprint
            FROM rowlock.finished AS finished
            WHERE finished.state = 'dead' AND finished.fingerprint > marks.fingerprint
            ORDER BY finished.fingerprint
            LIMIT 1
        ), marks.number + 1
    FROM marks
    WHERE marks.fingerprint IS NOT NULL AND marks.number <= :limit
)
SELECT marks.fingerprint,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock.finished AS finished
            WHERE finished.state = 'dead' AND finished.fingerprint = marks.fingerprint
            LIMIT :cap
        ) AS counted
    ),
    (
        SELECT min(finished.finished_at)
        FROM rowlock.finished AS finished
        WHERE finished.state = 'dead' AND finished.fingerprint = marks.fingerprint
    ),
    (
        SELECT max(finished.finished_at)
        FROM rowlock.finished AS finished
        WHERE finished.state = 'dead' AND finished.fingerprint = marks.fingerprint
    ),
    (
        SELECT finished.id::text
        FROM rowlock.finished AS finished
        WHERE finished.state = 'dead' AND finished.fingerprint = marks.fingerprint
        ORDER BY finished.finished_at DESC, finished.id DESC
        LIMIT 1
    )
FROM marks
WHERE marks.fingerprint IS NOT NULL

-- name: dead_samples
-- Dead jobs by id, without their large columns but with their last error. Uses finished_pkey.
SELECT {listed_finished}, {now}
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])

-- name: dead_groups_of
-- As dead_groups, for the jobs that match among the newest failures. Uses finished_dead.
SELECT newest.fingerprint, count(*), min(newest.finished_at), max(newest.finished_at),
    (
        SELECT finished.id::text
        FROM rowlock.finished AS finished
        WHERE finished.state = 'dead'
            AND finished.fingerprint = newest.fingerprint
            AND (:kind::text IS NULL OR finished.kind = :kind::text)
            AND (:queue::text IS NULL OR finished.queue = :queue::text)
            AND (:tenant::text IS NULL OR finished.tenant = :tenant::text)
        ORDER BY finished.finished_at DESC, finished.id DESC
        LIMIT 1
    )
FROM (
    SELECT finished.fingerprint, finished.finished_at, finished.kind, finished.queue,
        finished.tenant
    FROM rowlock.finished AS finished
    WHERE finished.state = 'dead'
    ORDER BY finished.finished_at DESC, finished.id DESC
    LIMIT :scan
) AS newest
WHERE newest.fingerprint IS NOT NULL
    AND (:kind::text IS NULL OR newest.kind = :kind::text)
    AND (:queue::text IS NULL OR newest.queue = :queue::text)
    AND (:tenant::text IS NULL OR newest.tenant = :tenant::text)
GROUP BY newest.fingerprint

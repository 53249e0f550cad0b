-- The fingerprints of dead jobs, of each how many up to a bound, the first and the last failure,
-- and the last job. A loose scan: one probe a group. Uses finished_fingerprint.
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

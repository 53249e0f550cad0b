-- Whether there are more finished jobs than a bound. Uses finished_pkey.
SELECT count(*)
FROM (
    SELECT finished.id
    FROM rowlock.finished AS finished
    ORDER BY finished.id DESC
    LIMIT 1 OFFSET :scan
) AS beyond

-- How many dead jobs there are, up to a bound. Uses finished_dead.
SELECT count(*)
FROM (
    SELECT 1
    FROM rowlock.finished AS finished
    WHERE finished.state = 'dead'
    LIMIT :cap
) AS counted

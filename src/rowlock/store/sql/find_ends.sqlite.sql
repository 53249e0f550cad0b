-- How jobs that are no longer live ended: their last token, and whether it was taken away.
-- Uses the primary keys.
SELECT finished.id, finished.token, finished.lease_taken
FROM rowlock_finished AS finished
WHERE finished.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT held.holder, held.token, held.lease_taken
FROM rowlock_key_hold AS held
WHERE held.holder IN (SELECT value FROM json_each(:ids))
    AND held.until > {now}
    AND NOT EXISTS (SELECT 1 FROM rowlock_finished AS finished WHERE finished.id = held.holder)

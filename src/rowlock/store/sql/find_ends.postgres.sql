-- How jobs that are no longer live ended: their last token, and whether it was taken away.
-- Uses finished_pkey, key_hold_pkey.
SELECT finished.id::text, finished.token, finished.lease_taken
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
UNION ALL
SELECT held.holder::text, held.token, held.lease_taken
FROM rowlock.key_hold AS held
WHERE held.holder = ANY (:ids::uuid[])
    AND held.until > {now}
    AND NOT EXISTS (SELECT FROM rowlock.finished AS finished WHERE finished.id = held.holder)

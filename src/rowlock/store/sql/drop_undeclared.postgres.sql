-- Remove schedules that came from code and are gone from it. Walks the table: it is small.
DELETE FROM rowlock.schedule
WHERE source = 'code'
    AND name <> ALL (:names::text[])
    AND (:owns_all::boolean OR kind = ANY (:kinds::text[]))
RETURNING name

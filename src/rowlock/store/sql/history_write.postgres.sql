-- Add a part to the sums of a slot; :at NULL is the slot that has just passed. Written again
-- after a lost answer, it is still one part. Uses history_pkey.
INSERT INTO rowlock.history (part, at, width, queue, kind, sums)
SELECT part.part, coalesce(part.at, (clock.now - :back::bigint) / :slot::bigint * :slot::bigint),
    :width::integer, part.queue, part.kind, part.sums
FROM (SELECT {now} AS now) AS clock,
    unnest(:part::uuid[], :at::bigint[], :queue::text[], :kind::text[], :sums::text[])
        AS part (part, at, queue, kind, sums)
ON CONFLICT (part, queue, kind) DO NOTHING

-- Add a part to the sums of a slot; :at NULL is the slot that has just passed. Written again
-- after a lost answer, it is still one part. Uses the primary key.
INSERT INTO rowlock_history (part, at, width, queue, kind, sums)
VALUES (
    :part, coalesce(:at, ({now} - :back) / :slot * :slot), :width, :queue, :kind, :sums
)
ON CONFLICT (part, queue, kind) DO NOTHING

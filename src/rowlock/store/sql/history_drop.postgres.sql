-- Remove parts of sums that were folded. Uses history_pkey.
DELETE FROM rowlock.history AS history
USING unnest(:part::uuid[], :queue::text[], :kind::text[]) AS gone (part, queue, kind)
WHERE history.part = gone.part AND history.queue = gone.queue AND history.kind = gone.kind

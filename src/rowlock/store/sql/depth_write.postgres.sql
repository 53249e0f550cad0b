-- Note how much waits in each queue; of several who look at once, one counts. Uses depth_pkey.
INSERT INTO rowlock.depth (at, queue, ready, scheduled, running, retrying, oldest_us)
SELECT :at::bigint, seen.queue, seen.ready, seen.scheduled, seen.running, seen.retrying,
    seen.oldest_us
FROM unnest(
        :queue::text[], :ready::bigint[], :scheduled::bigint[], :running::bigint[],
        :retrying::bigint[], :oldest_us::bigint[]
    ) AS seen (queue, ready, scheduled, running, retrying, oldest_us)
ON CONFLICT (at, queue) DO NOTHING

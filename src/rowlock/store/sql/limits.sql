-- fragment: at_limit (postgres)
-- Whether a job waits in the room of its limit. Uses job_room.
{of}.indexed_lease IS NULL AND {of}.held_by = 1

-- fragment: at_limit (sqlite)
{of}.lease_expires_at IS NULL AND {of}.held_by = 1

-- fragment: outside (postgres)
-- Whether a job with a limit waits until it is due. Uses job_outside.
{of}.indexed_lease IS NULL AND {of}.held_by = 2

-- fragment: outside (sqlite)
{of}.lease_expires_at IS NULL AND {of}.held_by = 2

-- fragment: under_limit (postgres)
-- Whether a job runs under a limit. Uses job_turn: in its order, so that no plan uses job_lease.
{of}.indexed_lease IS NOT NULL AND {of}.limit_name = :limit_name

-- fragment: under_limit (sqlite)
{of}.lease_expires_at IS NOT NULL AND {of}.limit_name = :limit_name

-- fragment: in_room (postgres)
-- Whether a job waits in the room that was asked for. Uses job_room. Two rooms may have one hash.
{of}.queue = :queue
AND hashtextextended(textcat(textcat({of}.kind, '/'), {of}.limit_name), {of}.rank)
    = hashtextextended(textcat(textcat(:kind, '/'), :limit_name), :rank::smallint)
AND {of}.indexed_lease IS NULL AND {of}.held_by = 1
AND {of}.rank = :rank::smallint AND {of}.kind = :kind AND {of}.limit_name = :limit_name

-- fragment: hash_of_room (postgres)
hashtextextended(textcat(textcat({of}.kind, '/'), {of}.limit_name), {of}.rank)

-- fragment: in_room (sqlite)
{of}.queue = :queue AND {of}.rank = :rank AND {of}.kind = :kind AND {of}.limit_name = :limit_name
AND {of}.lease_expires_at IS NULL AND {of}.held_by = 1

-- name: rooms (postgres)
-- The rooms in which jobs wait at their limits, by a loose scan of job_room: one probe per room.
-- Then, for each queue, when the first job with a limit is due that is not let in yet.
-- The variant is for paused queues, too.
WITH RECURSIVE room AS (
    (
        SELECT job.queue, job.rank, job.kind, job.limit_name, {hash_of_room job} AS hash
        FROM rowlock.job AS job
        WHERE {at_limit job}
        ORDER BY job.queue, {hash_of_room job}
        LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.rank, next.kind, next.limit_name, next.hash
    FROM room CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.limit_name, {hash_of_room job} AS hash
        FROM rowlock.job AS job
        WHERE {at_limit job} AND (job.queue, {hash_of_room job}) > (room.queue, room.hash)
        ORDER BY job.queue, {hash_of_room job}
        LIMIT 1
    ) AS next
),
outside AS (
    (
        SELECT job.queue, job.run_at
        FROM rowlock.job AS job
        WHERE {outside job}
        ORDER BY job.queue, job.run_at
        LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.run_at
    FROM outside CROSS JOIN LATERAL (
        SELECT job.queue, job.run_at
        FROM rowlock.job AS job
        WHERE {outside job} AND job.queue > outside.queue
        ORDER BY job.queue, job.run_at
        LIMIT 1
    ) AS next
),
found AS (
    SELECT room.queue, room.rank, room.kind, room.limit_name, NULL::bigint AS due_at
    FROM room
    WHERE :kinds::text[] IS NULL OR room.kind = ANY (:kinds::text[])
    UNION ALL
    SELECT outside.queue, NULL, NULL, NULL, outside.run_at
    FROM outside
)
SELECT found.queue, found.rank, found.kind, found.limit_name, found.due_at, {now}
FROM found LEFT JOIN rowlock.queue AS queue ON queue.name = found.queue
WHERE {all? true | queue.is_paused IS NOT TRUE}
    AND (:queues::text[] IS NULL OR found.queue = ANY (:queues::text[]))

-- name: rooms (sqlite)
-- The rooms in which jobs wait at their limits, by a loose scan of job_room: one probe per room.
-- Then, for each queue, when the first job with a limit is due that is not let in yet.
-- The variant is for paused queues, too.
WITH RECURSIVE room AS (
    SELECT head.queue, head.rank, head.kind, head.limit_name
    FROM rowlock_job AS head
    WHERE head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE {at_limit job}
        ORDER BY job.queue, job.rank, job.kind, job.limit_name
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.limit_name
    FROM room CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {at_limit job} AND job.queue = room.queue AND job.rank = room.rank
                AND job.kind = room.kind AND job.limit_name > room.limit_name
            ORDER BY job.limit_name
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {at_limit job} AND job.queue = room.queue AND job.rank = room.rank
                AND job.kind > room.kind
            ORDER BY job.kind, job.limit_name
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {at_limit job} AND job.queue = room.queue AND job.rank > room.rank
            ORDER BY job.rank, job.kind, job.limit_name
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {at_limit job} AND job.queue > room.queue
            ORDER BY job.queue, job.rank, job.kind, job.limit_name
            LIMIT 1
        )
    )
),
outside AS (
    SELECT min(job.queue) AS queue
    FROM rowlock_job AS job
    WHERE {outside job}
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock_job AS job
        WHERE {outside job} AND job.queue > outside.queue
    )
    FROM outside
    WHERE outside.queue IS NOT NULL
),
found AS (
    SELECT room.queue, room.rank, room.kind, room.limit_name, NULL AS due_at
    FROM room
    WHERE :kinds IS NULL OR room.kind IN (SELECT value FROM json_each(:kinds))
    UNION ALL
    SELECT outside.queue, NULL, NULL, NULL, (
        SELECT min(job.run_at)
        FROM rowlock_job AS job
        WHERE {outside job} AND job.queue = outside.queue
    )
    FROM outside
    WHERE outside.queue IS NOT NULL
)
SELECT found.queue, found.rank, found.kind, found.limit_name, found.due_at, {now}
FROM found LEFT JOIN rowlock_queue AS queue ON queue.name = found.queue
WHERE {all? true | coalesce(queue.is_paused, 0) = 0}
    AND (:queues IS NULL OR found.queue IN (SELECT value FROM json_each(:queues)))

-- name: admit
-- Let jobs with a limit that have become due into their rooms. Uses job_outside.
UPDATE rowlock.job
SET held_by = 1
WHERE id IN (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.queue = ANY (:queues::text[])
        AND {outside job}
        AND job.run_at <= (SELECT {now})
    ORDER BY job.run_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING 1

-- fragment: known_tat (postgres)
-- The `tat` of a limit. No rate puts it further ahead of the clock than its burst: if it is, it is
-- left from a slower rate, or from a clock that was ahead, and the next start is due now.
CASE
    WHEN {of}.tat > (SELECT now FROM clock) + {of}.burst * {of}.interval_us
    THEN (SELECT now FROM clock) + ({of}.burst - 1) * {of}.interval_us
    ELSE {of}.tat
END AS tat

-- fragment: known_tat (sqlite)
CASE
    WHEN {of}.tat > {now} + {of}.burst * {of}.interval_us
    THEN {now} + ({of}.burst - 1) * {of}.interval_us
    ELSE {of}.tat
END AS tat

-- fragment: key_rules (postgres)
-- What counts for a key: what is stored for it, and the rules of its limit for the rest.
coalesce({of}.concurrency, rule.key_concurrency) AS concurrency,
coalesce({of}.interval_us, rule.key_interval_us) AS interval_us,
coalesce({of}.burst, rule.key_burst) AS burst,
coalesce({of}.closed_until, 0) AS closed_until,
CASE
    WHEN {of}.tat > (SELECT now FROM clock) + coalesce({of}.burst, rule.key_burst)
        * coalesce({of}.interval_us, rule.key_interval_us)
    THEN (SELECT now FROM clock) + (coalesce({of}.burst, rule.key_burst) - 1)
        * coalesce({of}.interval_us, rule.key_interval_us)
    ELSE coalesce({of}.tat, 0)
END AS tat

-- fragment: key_rules (sqlite)
coalesce({of}.concurrency, rule.key_concurrency) AS concurrency,
coalesce({of}.interval_us, rule.key_interval_us) AS interval_us,
coalesce({of}.burst, rule.key_burst) AS burst,
coalesce({of}.closed_until, 0) AS closed_until,
CASE
    WHEN {of}.tat > {now} + coalesce({of}.burst, rule.key_burst)
        * coalesce({of}.interval_us, rule.key_interval_us)
    THEN {now} + (coalesce({of}.burst, rule.key_burst) - 1)
        * coalesce({of}.interval_us, rule.key_interval_us)
    ELSE coalesce({of}.tat, 0)
END AS tat

-- fragment: open_at (postgres)
-- When a key or a limit lets the next job start, as far as its rate and a pause are concerned.
greatest(
    {of}.closed_until,
    CASE WHEN {of}.interval_us > 0 THEN {of}.tat - ({of}.burst - 1) * {of}.interval_us ELSE 0 END
)

-- fragment: open_at (sqlite)
max(
    {of}.closed_until,
    CASE WHEN {of}.interval_us > 0 THEN {of}.tat - ({of}.burst - 1) * {of}.interval_us ELSE 0 END
)

-- fragment: starts_left (postgres)
-- How many jobs may start now by the rate of a key or a limit. NULL: any number.
CASE
    WHEN {of}.interval_us IS NULL OR {of}.interval_us = 0 THEN NULL
    WHEN {of}.tat - ({of}.burst - 1) * {of}.interval_us > clock.now THEN 0
    ELSE (clock.now + ({of}.burst - 1) * {of}.interval_us - greatest(clock.now, {of}.tat))
        / {of}.interval_us + 1
END

-- fragment: starts_left (sqlite)
CASE
    WHEN {of}.interval_us IS NULL OR {of}.interval_us = 0 THEN NULL
    WHEN {of}.tat - ({of}.burst - 1) * {of}.interval_us > {now} THEN 0
    ELSE ({now} + ({of}.burst - 1) * {of}.interval_us - max({now}, {of}.tat))
        / {of}.interval_us + 1
END

-- name: walk_room (postgres)
-- Some keys of a room, from a place on, by a loose scan of job_room: (key, its first job, how many
-- of it may run in addition, when it is open, its weight, whether it is ours to take, the time
-- between its starts). The last row is about the limit itself: what it allows is shared by all its
-- keys.
-- The variant visits keys that are known, each from a job on, and counts what runs from a turn on:
-- while a transaction is open elsewhere, jobs that have ended leave dead index entries, and a walk
-- that starts at the beginning has to pass them all.
-- A key with a limit of its own is ours if we get its lock, which lasts until the end of the
-- transaction. What runs is counted again in the next statement: only that one sees what the last
-- holder of the lock has done. (Locked and counted in one statement, a prototype had twice as many
-- runs as were allowed.) There are 1,024 locks: with one per key, the prototype used up the table
-- of locks.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT {now} AS now
),
stored AS MATERIALIZED (
    SELECT rule.concurrency, rule.interval_us, rule.burst, rule.key_concurrency,
        rule.key_interval_us, rule.key_burst, coalesce(rule.closed_until, 0) AS closed_until,
        {known_tat rule}, rule.is_ordered, rule.weights
    FROM rowlock.job_limit AS rule
    WHERE rule.name = :limit_name
),
rule AS MATERIALIZED (
    SELECT known.*, CASE
        WHEN known.open_at > clock.now OR known.free <= 0 THEN false
        WHEN known.free IS NULL THEN true
        ELSE pg_try_advisory_xact_lock(
            :lock_class::integer, 1024 + (hashtext(:limit_name) & 1023)
        )
    END AS is_ours
    FROM clock, (
        SELECT stored.*, {open_at stored} AS open_at, least(
            stored.concurrency - CASE
                WHEN stored.concurrency IS NOT NULL THEN (
                    SELECT count(*)
                    FROM (
                        SELECT
                        FROM rowlock.job AS job
                        WHERE {under_limit job} AND job.turn > :total_upto::bigint
                        ORDER BY job.limit_key, job.turn
                        LIMIT stored.concurrency
                    ) AS running
                )
            END,
            {starts_left stored}
        ) AS free
        FROM stored, clock
        OFFSET 0
    ) AS known
),
{known? asked AS MATERIALIZED (
    SELECT asked.key, asked.floor_at, asked.floor_id, asked.upto, asked.old::bigint[] AS old
    FROM unnest(
        :keys::text[], :floors_at::bigint[], :floors_id::uuid[], :uptos::bigint[], :olds::text[]
    ) AS asked (key, floor_at, floor_id, upto, old)
),
room AS (
    SELECT asked.key AS limit_key, head.run_at, head.id, asked.upto, asked.old
    FROM asked CROSS JOIN LATERAL (
        SELECT job.run_at, job.id
        FROM rowlock.job AS job
        WHERE {in_room job} AND job.limit_key = asked.key
            AND (job.run_at, job.id) >= (asked.floor_at, asked.floor_id)
        ORDER BY job.run_at, job.id
        LIMIT 1
    ) AS head
    WHERE (SELECT rule.is_ours FROM rule)
), | room AS (
    -- From the start on, and behind the last key from the first to the start.
    SELECT first.limit_key, first.run_at, first.id, first.is_wrapped
    FROM (
        (
            SELECT job.limit_key, job.run_at, job.id, false AS is_wrapped
            FROM rowlock.job AS job
            WHERE {in_room job} AND job.limit_key >= :start
            ORDER BY job.limit_key, job.run_at, job.id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT job.limit_key, job.run_at, job.id, true
            FROM rowlock.job AS job
            WHERE {in_room job} AND job.limit_key < :start
            ORDER BY job.limit_key, job.run_at, job.id
            LIMIT 1
        )
        LIMIT 1
    ) AS first
    WHERE (SELECT rule.is_ours FROM rule)
    UNION ALL
    SELECT next.limit_key, next.run_at, next.id, next.is_wrapped
    FROM room CROSS JOIN LATERAL (
        (
            SELECT job.limit_key, job.run_at, job.id, room.is_wrapped
            FROM rowlock.job AS job
            WHERE {in_room job} AND job.limit_key > room.limit_key
                AND (NOT room.is_wrapped OR job.limit_key < :start)
            ORDER BY job.limit_key, job.run_at, job.id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT job.limit_key, job.run_at, job.id, true
            FROM rowlock.job AS job
            WHERE {in_room job} AND job.limit_key < :start
                AND NOT room.is_wrapped
            ORDER BY job.limit_key, job.run_at, job.id
            LIMIT 1
        )
        LIMIT 1
    ) AS next
),}
seen AS MATERIALIZED (
    SELECT room.limit_key, room.run_at, room.id, {known? room.upto, room.old | 0 AS upto},
        state.weight,
        {key_rules state}, coalesce(rule.concurrency, rule.interval_us) IS NOT NULL AS has_total
    FROM (SELECT * FROM room LIMIT :visits) AS room CROSS JOIN rule
        LEFT JOIN rowlock.limit_key AS state
        ON state.limit_name = :limit_name AND state.key = room.limit_key
),
counted AS MATERIALIZED (
    SELECT seen.*, {open_at seen} AS open_at, least(
        seen.concurrency - CASE
            WHEN seen.concurrency IS NOT NULL THEN (
                SELECT count(*)
                FROM (
                    SELECT
                    FROM rowlock.job AS job
                    WHERE {under_limit job} AND job.limit_key = seen.limit_key
                        AND job.turn > seen.upto
                    ORDER BY job.turn
                    LIMIT seen.concurrency
                ) AS running
            ){known?  + (
                SELECT count(*)
                FROM unnest(seen.old) AS old (turn) CROSS JOIN LATERAL (
                    SELECT
                    FROM rowlock.job AS job
                    WHERE {under_limit job} AND job.limit_key = seen.limit_key
                        AND job.turn >= old.turn AND job.turn <= old.turn
                    ORDER BY job.turn
                    LIMIT 1
                ) AS running
            )}
        END,
        {starts_left seen}
    ) AS free
    FROM seen, clock
)
SELECT counted.limit_key, counted.run_at, counted.id::text, counted.free, counted.open_at,
    counted.weight, CASE
    WHEN counted.free <= 0 OR counted.open_at > clock.now THEN false
    -- Whoever has the lock of the whole limit is alone there.
    WHEN coalesce(counted.concurrency, counted.interval_us) IS NULL OR counted.has_total THEN true
    ELSE pg_try_advisory_xact_lock(
        :lock_class::integer, hashtext(textcat(textcat(:limit_name, '/'), counted.limit_key)) & 1023
    )
END, counted.interval_us, counted.burst * counted.interval_us, NULL::text, NULL::boolean, clock.now,
    NULL::bigint
FROM counted, clock
UNION ALL
SELECT NULL, NULL, NULL, rule.free, rule.open_at, NULL, rule.is_ours, rule.interval_us, NULL,
    rule.weights, rule.is_ordered, clock.now,
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint
FROM rule, clock

-- name: walk_room (sqlite)
-- Some keys of a room, from a place on, by a loose scan of job_room: (key, its first job, how many
-- of it may run in addition, when it is open, its weight, whether it is open, the time between its
-- starts). The last row is about the limit itself. All are exact: nobody else writes meanwhile.
-- The variant visits keys that are known.
WITH RECURSIVE stored AS MATERIALIZED (
    SELECT rule.concurrency, rule.interval_us, rule.burst, rule.key_concurrency,
        rule.key_interval_us, rule.key_burst, coalesce(rule.closed_until, 0) AS closed_until,
        {known_tat rule}, rule.is_ordered, rule.weights
    FROM rowlock_job_limit AS rule
    WHERE rule.name = :limit_name
),
total AS MATERIALIZED (
    SELECT {open_at stored} AS open_at, min(
        coalesce(stored.concurrency - CASE
            WHEN stored.concurrency IS NOT NULL
            THEN (SELECT count(*) FROM rowlock_job AS job WHERE {under_limit job})
        END, 1000000),
        coalesce({starts_left stored}, 1000000)
    ) AS free, stored.interval_us, stored.is_ordered, stored.weights
    FROM stored
),
{known? room AS (
    SELECT asked.value AS limit_key
    FROM json_each(:keys) AS asked
    WHERE EXISTS (
        SELECT 1 FROM rowlock_job AS job WHERE {in_room job} AND job.limit_key = asked.value
    )
        AND (SELECT total.free > 0 AND total.open_at <= {now} FROM total)
    LIMIT :visits
), | room (limit_key, is_wrapped) AS (
    -- From the start on, then NULL, and from the first to the start.
    SELECT (
        SELECT min(job.limit_key)
        FROM rowlock_job AS job
        WHERE {in_room job} AND job.limit_key >= :start
    ), 0
    FROM total
    WHERE total.free > 0 AND total.open_at <= {now}
    UNION ALL
    SELECT CASE
        WHEN room.limit_key IS NULL THEN (
            SELECT min(job.limit_key)
            FROM rowlock_job AS job
            WHERE {in_room job} AND job.limit_key < :start
        )
        WHEN room.is_wrapped THEN (
            SELECT min(job.limit_key)
            FROM rowlock_job AS job
            WHERE {in_room job} AND job.limit_key > room.limit_key AND job.limit_key < :start
        )
        ELSE (
            SELECT min(job.limit_key)
            FROM rowlock_job AS job
            WHERE {in_room job} AND job.limit_key > room.limit_key
        )
    END, room.is_wrapped OR room.limit_key IS NULL
    FROM room
    WHERE room.limit_key IS NOT NULL OR NOT room.is_wrapped
    LIMIT :visits + 2
),}
seen AS MATERIALIZED (
    SELECT room.limit_key, state.weight, {key_rules state}
    FROM room CROSS JOIN stored AS rule
        LEFT JOIN rowlock_limit_key AS state
        ON state.limit_name = :limit_name AND state.key = room.limit_key
    WHERE room.limit_key IS NOT NULL
)
SELECT seen.limit_key, 0, '', min(
    coalesce(seen.concurrency - CASE
        WHEN seen.concurrency IS NOT NULL THEN (
            SELECT count(*)
            FROM rowlock_job AS job
            WHERE {under_limit job} AND job.limit_key = seen.limit_key
        )
    END, 1000000),
    coalesce({starts_left seen}, 1000000)
), {open_at seen}, seen.weight, {open_at seen} <= {now}, seen.interval_us,
    seen.burst * seen.interval_us, NULL, NULL, {now}, NULL
FROM seen
UNION ALL
SELECT NULL, NULL, NULL, total.free, total.open_at, NULL,
    total.free > 0 AND total.open_at <= {now}, total.interval_us, NULL, total.weights,
    total.is_ordered, {now}, 0
FROM total

-- name: take_room (postgres)
-- Lease jobs of keys that are ours, each up to a number, in the order of the keys, as many as the
-- limit and each key still allow. Each key starts at a job, and what runs is counted from a turn
-- on, with the older turns that were alive then. After each job come its turn, the turns of its key
-- that were alive before (the first of them, and how many), and the oldest turn of the whole limit.
-- The variant is for jobs that run in order: only the first of a key, if it waits.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
stored AS MATERIALIZED (
    SELECT rule.name, rule.concurrency, rule.interval_us, rule.burst, rule.key_concurrency,
        rule.key_interval_us, rule.key_burst,
        {known_tat rule}
    FROM rowlock.job_limit AS rule
    WHERE rule.name = :limit_name
        AND coalesce(rule.closed_until, 0) <= (SELECT now FROM clock)
),
rule AS MATERIALIZED (
    SELECT stored.*, running.oldest, least(
        :limit::bigint,
        stored.concurrency - running.jobs,
        {starts_left stored}
    ) AS room
    FROM clock CROSS JOIN stored LEFT JOIN LATERAL (
        SELECT count(*) AS jobs, min(each.turn) AS oldest
        FROM (
            SELECT job.turn
            FROM rowlock.job AS job
            WHERE stored.concurrency IS NOT NULL
                AND {under_limit job} AND job.turn > :total_upto::bigint
            ORDER BY job.limit_key, job.turn
            LIMIT stored.concurrency
        ) AS each
    ) AS running ON true
),
seen AS MATERIALIZED (
    SELECT asked.key, asked.most, asked.n, asked.floor_at, asked.floor_id, asked.upto,
        asked.old::bigint[] AS old, asked.first_place, {key_rules state}
    FROM rule CROSS JOIN unnest(
            :key::text[], :most::bigint[], :floor_at::bigint[], :floor_id::uuid[], :upto::bigint[],
            :old::text[], :first_place::bigint[]
        ) WITH ORDINALITY AS asked (key, most, floor_at, floor_id, upto, old, first_place, n)
        LEFT JOIN rowlock.limit_key AS state
        ON state.limit_name = rule.name AND state.key = asked.key
    WHERE rule.room > 0
),
counted AS MATERIALIZED (
    SELECT seen.*, CASE
        WHEN seen.concurrency IS NULL THEN NULL
        WHEN seen.old = '{}' THEN ARRAY(
            SELECT job.turn
            FROM rowlock.job AS job
            WHERE {under_limit job} AND job.limit_key = seen.key AND job.turn > seen.upto
            ORDER BY job.turn
            LIMIT seen.concurrency
        )
        ELSE ARRAY(
            (
                SELECT alive.turn
                FROM unnest(seen.old) AS old (turn) CROSS JOIN LATERAL (
                    SELECT job.turn
                    FROM rowlock.job AS job
                    WHERE {under_limit job} AND job.limit_key = seen.key
                        AND job.turn >= old.turn AND job.turn <= old.turn
                    ORDER BY job.turn
                    LIMIT 1
                ) AS alive
                ORDER BY alive.turn
            )
            UNION ALL
            (
                SELECT job.turn
                FROM rowlock.job AS job
                WHERE {under_limit job} AND job.limit_key = seen.key AND job.turn > seen.upto
                ORDER BY job.turn
                LIMIT seen.concurrency
            )
        )
    END AS alive
    FROM seen, clock
    WHERE seen.closed_until <= clock.now
),
open AS MATERIALIZED (
    SELECT counted.key, counted.n, counted.floor_at, counted.floor_id, counted.first_place,
        counted.alive, least(
            counted.most, counted.concurrency - cardinality(counted.alive), {starts_left counted}
        ) AS room
    FROM counted, clock
),
picked AS MATERIALIZED (
    SELECT head.ctid
    FROM (SELECT * FROM open WHERE open.room > 0 ORDER BY open.n) AS open CROSS JOIN LATERAL (
        SELECT job.ctid
        FROM rowlock.job AS job
        WHERE {in_room job} AND job.limit_key = open.key
            AND (job.run_at, job.id) >= (open.floor_at, open.floor_id)
            AND (:tenants::text[] IS NULL OR job.tenant = ANY (:tenants::text[]))
            {ordered? AND job.id = (
                SELECT first.id
                FROM rowlock.job AS first
                WHERE first.limit_name = :limit_name AND first.limit_key = open.key
                    AND first.place >= open.first_place
                ORDER BY first.place, first.id
                LIMIT 1
            )}
        ORDER BY job.run_at, job.id
        LIMIT open.room
        FOR UPDATE SKIP LOCKED
    ) AS head
    LIMIT (SELECT room FROM rule)
)
UPDATE rowlock.job AS job
{leased job},
    turn = nextval('rowlock.turn_number')
FROM clock
WHERE job.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked))
RETURNING {job}, job.turn, clock.now,
    CASE WHEN :asks::boolean THEN (
        SELECT open.alive[1:20] FROM open WHERE open.key = job.limit_key
    ) END,
    CASE WHEN :asks::boolean THEN (
        SELECT cardinality(open.alive) FROM open WHERE open.key = job.limit_key
    ) END,
    (SELECT coalesce(rule.oldest, 0) FROM rule WHERE rule.concurrency IS NOT NULL)

-- name: take_room (sqlite)
-- Lease jobs of a key, up to a number.
-- The variant is for jobs that run in order: only the first of a key, if it waits.
UPDATE rowlock_job
{leased job}
WHERE rowid IN (
    SELECT job.rowid
    FROM rowlock_job AS job
    WHERE {in_room job} AND job.limit_key = :key
        AND (:tenants IS NULL OR job.tenant IN (SELECT value FROM json_each(:tenants)))
        {ordered? AND job.id = (
            SELECT first.id
            FROM rowlock_job AS first
            WHERE first.limit_name = :limit_name AND first.limit_key = :key
                AND first.place IS NOT NULL
            ORDER BY first.place, first.id
            LIMIT 1
        )}
    ORDER BY job.run_at, job.id
    LIMIT min(:most, :limit)
)
RETURNING {row}, 0, {now}, NULL, NULL, NULL

-- name: spend_key (postgres)
-- Put off the next start of keys that have a rate: by `time` microseconds. Uses limit_key_pkey.
INSERT INTO rowlock.limit_key (limit_name, key, tat)
SELECT :limit_name, spent.key, spent.time + greatest(:at::bigint, CASE
    WHEN state.tat > :at::bigint + spent.ahead THEN :at::bigint + spent.ahead - spent.interval
    ELSE state.tat
END)
FROM unnest(:key::text[], :time::bigint[], :ahead::bigint[], :interval::bigint[])
    AS spent (key, time, ahead, interval)
    LEFT JOIN rowlock.limit_key AS state
    ON state.limit_name = :limit_name AND state.key = spent.key
ORDER BY spent.key
ON CONFLICT (limit_name, key) DO UPDATE
SET tat = excluded.tat

-- name: spend_key (sqlite)
-- Put off the next start of a key that has a rate: by `time` microseconds. Uses the primary key.
INSERT INTO rowlock_limit_key (limit_name, key, tat)
VALUES (:limit_name, :key, :at + :time)
ON CONFLICT (limit_name, key) DO UPDATE
SET tat = :time + max(:at, CASE
    WHEN tat > :at + :ahead THEN :at + :ahead - :interval
    ELSE tat
END)

-- name: spend_limit (postgres)
-- Put off the next start of a limit that has a rate.
UPDATE rowlock.job_limit
SET tat = :starts::bigint * interval_us + greatest(:at::bigint, CASE
    WHEN tat > :at::bigint + burst * interval_us THEN :at::bigint + (burst - 1) * interval_us
    ELSE tat
END)
WHERE name = :limit_name AND interval_us > 0

-- name: spend_limit (sqlite)
-- Put off the next start of a limit that has a rate.
UPDATE rowlock_job_limit
SET tat = :starts * interval_us + max(:at, CASE
    WHEN tat > :at + burst * interval_us THEN :at + (burst - 1) * interval_us
    ELSE tat
END)
WHERE name = :limit_name AND interval_us > 0

-- name: lock_limits
-- Lock limits by name, in one order.
SELECT rule.name, rule.declared, rule.chosen
FROM rowlock.job_limit AS rule
WHERE rule.name = ANY (:names::text[])
ORDER BY rule.name
FOR UPDATE OF rule

-- name: add_limit (postgres)
-- Write limits that are new.
INSERT INTO rowlock.job_limit (
    name, concurrency, interval_us, burst, key_concurrency, key_interval_us, key_burst, is_ordered,
    pauses_when_dead, weights, declared, chosen, declared_at
)
SELECT fresh.*, {now}
FROM unnest(
    :name::text[], :concurrency::integer[], :interval_us::bigint[], :burst::integer[],
    :key_concurrency::integer[], :key_interval_us::bigint[], :key_burst::integer[],
    :is_ordered::boolean[], :pauses_when_dead::boolean[], :weights::text[], :declared::text[],
    :chosen::text[]
) AS fresh
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: add_limit (sqlite)
-- Write a limit that is new.
INSERT INTO rowlock_job_limit (
    name, concurrency, interval_us, burst, key_concurrency, key_interval_us, key_burst, is_ordered,
    pauses_when_dead, weights, declared, chosen, declared_at
)
VALUES (
    :name, :concurrency, :interval_us, :burst, :key_concurrency, :key_interval_us, :key_burst,
    :is_ordered, :pauses_when_dead, :weights, :declared, :chosen, {now}
)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: change_limit (postgres)
-- Change what counts for limits.
UPDATE rowlock.job_limit AS job_limit
SET concurrency = changed.concurrency,
    interval_us = changed.interval_us,
    burst = changed.burst,
    key_concurrency = changed.key_concurrency,
    key_interval_us = changed.key_interval_us,
    key_burst = changed.key_burst,
    is_ordered = changed.is_ordered,
    pauses_when_dead = changed.pauses_when_dead,
    weights = changed.weights,
    chosen = changed.chosen,
    declared_at = CASE
        WHEN job_limit.declared = changed.declared THEN job_limit.declared_at ELSE {now}
    END,
    declared = changed.declared
FROM unnest(
    :name::text[], :concurrency::integer[], :interval_us::bigint[], :burst::integer[],
    :key_concurrency::integer[], :key_interval_us::bigint[], :key_burst::integer[],
    :is_ordered::boolean[], :pauses_when_dead::boolean[], :weights::text[], :declared::text[],
    :chosen::text[]
) AS changed (
    name, concurrency, interval_us, burst, key_concurrency, key_interval_us, key_burst, is_ordered,
    pauses_when_dead, weights, declared, chosen
)
WHERE job_limit.name = changed.name

-- name: change_limit (sqlite)
-- Change what counts for a limit.
UPDATE rowlock_job_limit
SET concurrency = :concurrency,
    interval_us = :interval_us,
    burst = :burst,
    key_concurrency = :key_concurrency,
    key_interval_us = :key_interval_us,
    key_burst = :key_burst,
    is_ordered = :is_ordered,
    pauses_when_dead = :pauses_when_dead,
    weights = :weights,
    chosen = :chosen,
    declared_at = CASE WHEN declared = :declared THEN declared_at ELSE {now} END,
    declared = :declared
WHERE name = :name

-- name: set_key
-- Give a key numbers of its own. NULL keeps those that it has. Uses limit_key_pkey.
INSERT INTO rowlock.limit_key AS state (limit_name, key, concurrency, interval_us, burst, weight)
VALUES (
    :limit_name, :key, :concurrency::integer, :interval_us::bigint, :burst::integer,
    :weight::integer
)
ON CONFLICT (limit_name, key) DO UPDATE
SET concurrency = coalesce(excluded.concurrency, state.concurrency),
    interval_us = coalesce(excluded.interval_us, state.interval_us),
    burst = CASE
        WHEN excluded.interval_us IS NULL THEN state.burst ELSE excluded.burst
    END,
    weight = coalesce(excluded.weight, state.weight)

-- name: unset_key
-- Take a key's own numbers away. Uses limit_key_pkey.
UPDATE rowlock.limit_key
SET concurrency = NULL, interval_us = NULL, burst = NULL, weight = NULL
WHERE limit_name = :limit_name AND key = :key

-- name: close_limit
-- Start no job of a limit for some time.
UPDATE rowlock.job_limit
SET closed_until = {now} + :time::bigint, closed_by = :reason::text
WHERE name = :limit_name

-- name: close_key
-- Start no job of a key for some time; longer, if it is closed for longer. Uses limit_key_pkey.
INSERT INTO rowlock.limit_key AS state (limit_name, key, closed_until, closed_by)
VALUES (:limit_name, :key, {now} + :time::bigint, :reason::text)
ON CONFLICT (limit_name, key) DO UPDATE
SET closed_by = CASE
        WHEN state.closed_until > excluded.closed_until THEN state.closed_by
        ELSE excluded.closed_by
    END,
    closed_until = CASE
        WHEN state.closed_until > excluded.closed_until THEN state.closed_until
        ELSE excluded.closed_until
    END

-- name: open_limit
-- Start jobs of a limit again.
UPDATE rowlock.job_limit
SET closed_until = NULL, closed_by = NULL
WHERE name = :limit_name

-- name: open_key
-- Start jobs of a key again. Uses limit_key_pkey.
UPDATE rowlock.limit_key
SET closed_until = NULL, closed_by = NULL
WHERE limit_name = :limit_name AND key = :key

-- name: close_when_dead
-- Start no job of a key after one has died, if its limit says so.
INSERT INTO rowlock.limit_key AS state (limit_name, key, closed_until, closed_by)
SELECT rule.name, :key, {now} + :time::bigint, :reason::text
FROM rowlock.job_limit AS rule
WHERE rule.name = :limit_name AND rule.pauses_when_dead
ON CONFLICT (limit_name, key) DO UPDATE
SET closed_by = excluded.closed_by, closed_until = excluded.closed_until

-- name: drop_keys
-- Remove what is remembered about keys and no longer matters. Walks limit_key_pkey from a place.
DELETE FROM rowlock.limit_key
WHERE (limit_name, key) IN (
    SELECT state.limit_name, state.key
    FROM rowlock.limit_key AS state
    WHERE coalesce(state.concurrency, state.interval_us, state.burst, state.weight) IS NULL
        AND state.tat <= (SELECT {now})
        AND coalesce(state.closed_until, 0) <= (SELECT {now})
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING key

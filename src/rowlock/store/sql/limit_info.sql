-- fragment: chosen_key
-- Whether a key was paused or has numbers of its own. Uses limit_key_chosen.
coalesce({of}.closed_until, {of}.concurrency, {of}.interval_us, {of}.weight) IS NOT NULL

-- name: limit_list (postgres)
-- Limits in the order of their names, after one: what counts, what was declared and set, until when
-- it is closed (also the key '', which limits without keys have), when it lets a job start, and how
-- many jobs run and how many keys are closed, up to a cap. Uses job_turn, limit_key_chosen.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
stored AS MATERIALIZED (
    SELECT rule.name, rule.declared, rule.chosen, rule.declared_at, rule.concurrency,
        rule.interval_us, rule.burst, rule.key_concurrency, rule.key_interval_us, rule.key_burst,
        coalesce(rule.closed_until, 0) AS closed_until, rule.closed_by, {known_tat rule}
    FROM rowlock.job_limit AS rule
    WHERE rule.name > :after AND (:names::text[] IS NULL OR rule.name = ANY (:names::text[]))
    ORDER BY rule.name
    LIMIT :limit
)
SELECT stored.name, stored.declared, stored.chosen, stored.declared_at, stored.concurrency,
    stored.interval_us, stored.burst, stored.key_concurrency, stored.key_interval_us,
    stored.key_burst, stored.closed_until, stored.closed_by, bare.closed_until, bare.closed_by,
    {open_at stored}, (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.indexed_lease IS NOT NULL AND job.limit_name = stored.name
            LIMIT :cap
        ) AS capped
    ), (
        SELECT count(*) FILTER (WHERE capped.closed_until > (SELECT now FROM clock))
        FROM (
            SELECT state.closed_until
            FROM rowlock.limit_key AS state
            WHERE state.limit_name = stored.name AND {chosen_key state}
            LIMIT :cap
        ) AS capped
    )
FROM stored LEFT JOIN rowlock.limit_key AS bare
    ON bare.limit_name = stored.name AND bare.key = ''
ORDER BY stored.name

-- name: limit_list (sqlite)
-- Limits in the order of their names, after one: what counts, what was declared and set, until when
-- it is closed (also the key '', which limits without keys have), when it lets a job start, and how
-- many jobs run and how many keys are closed, up to a cap. Uses job_turn, limit_key_chosen.
WITH stored AS MATERIALIZED (
    SELECT rule.name, rule.declared, rule.chosen, rule.declared_at, rule.concurrency,
        rule.interval_us, rule.burst, rule.key_concurrency, rule.key_interval_us, rule.key_burst,
        coalesce(rule.closed_until, 0) AS closed_until, rule.closed_by, {known_tat rule}
    FROM rowlock_job_limit AS rule
    WHERE rule.name > :after
        AND (:names IS NULL OR rule.name IN (SELECT value FROM json_each(:names)))
    ORDER BY rule.name
    LIMIT :limit
)
SELECT stored.name, stored.declared, stored.chosen, stored.declared_at, stored.concurrency,
    stored.interval_us, stored.burst, stored.key_concurrency, stored.key_interval_us,
    stored.key_burst, stored.closed_until, stored.closed_by, bare.closed_until, bare.closed_by,
    {open_at stored}, (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NOT NULL AND job.limit_name = stored.name
            LIMIT :cap
        )
    ), (
        SELECT count(*) FILTER (WHERE capped.closed_until > {now})
        FROM (
            SELECT state.closed_until
            FROM rowlock_limit_key AS state
            WHERE state.limit_name = stored.name AND {chosen_key state}
            LIMIT :cap
        ) AS capped
    )
FROM stored LEFT JOIN rowlock_limit_key AS bare
    ON bare.limit_name = stored.name AND bare.key = ''
ORDER BY stored.name

-- name: count_rooms (postgres)
-- How many jobs wait in rooms, up to a cap, and since when the oldest. Uses job_room alone.
-- The variant is for the jobs of one key before a place, optionally only those of one tenant.
SELECT room.limit_name, waiting.jobs, waiting.oldest
FROM unnest(
        :queue::text[], :rank::smallint[], :kind::text[], :limit_name::text[]
        {key? , :run_at::bigint[], :id::uuid[]}
    ) AS room (queue, rank, kind, limit_name{key? , run_at, id}),
    LATERAL (
        SELECT count(*) {key? FILTER (
            WHERE :tenant::text IS NULL OR capped.tenant = :tenant::text
        )} AS jobs, min(capped.run_at) AS oldest
        FROM (
            SELECT job.run_at{key? , job.tenant}
            FROM rowlock.job AS job
            WHERE job.queue = room.queue AND {hash_of_room job} = {hash_of_room room}
                AND job.rank = room.rank AND job.kind = room.kind
                AND job.limit_name = room.limit_name AND {at_limit job}
                {key? AND job.limit_key = :key AND (job.run_at, job.id) < (room.run_at, room.id)}
            LIMIT :cap
        ) AS capped
    ) AS waiting

-- name: count_rooms (sqlite)
-- How many jobs wait in a room, up to a cap, and since when the oldest. Uses job_room alone.
-- The variant is for the jobs of one key before a place, optionally only those of one tenant.
SELECT :limit_name, count(*) {key? FILTER (
    WHERE :tenant IS NULL OR capped.tenant = :tenant
)}, min(capped.run_at)
FROM (
    SELECT job.run_at{key? , job.tenant}
    FROM rowlock_job AS job
    WHERE job.queue = :queue AND job.rank = :rank AND job.kind = :kind
        AND job.limit_name = :limit_name AND {at_limit job}
        {key? AND job.limit_key = :key AND (job.run_at, job.id) < (:run_at, :id)}
    LIMIT :cap
) AS capped

-- name: room_keys (postgres)
-- Keys of a room from a place on, by a loose scan of job_room, and how many jobs of each wait
-- there, up to a cap.
WITH RECURSIVE room AS (
    (
        SELECT job.limit_key
        FROM rowlock.job AS job
        WHERE {in_room job} AND job.limit_key >= :start
        ORDER BY job.limit_key
        LIMIT 1
    )
    UNION ALL
    SELECT next.limit_key
    FROM room CROSS JOIN LATERAL (
        SELECT job.limit_key
        FROM rowlock.job AS job
        WHERE {in_room job} AND job.limit_key > room.limit_key
        ORDER BY job.limit_key
        LIMIT 1
    ) AS next
)
SELECT seen.limit_key, waiting.jobs
FROM (SELECT limit_key FROM room LIMIT :visits) AS seen CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM (
        SELECT
        FROM rowlock.job AS job
        WHERE {in_room job} AND job.limit_key = seen.limit_key
        LIMIT :cap
    ) AS capped
) AS waiting

-- name: room_keys (sqlite)
-- Keys of a room from a place on, by a loose scan of job_room, and how many jobs of each wait
-- there, up to a cap.
WITH RECURSIVE room (limit_key) AS (
    SELECT * FROM (
        SELECT min(job.limit_key)
        FROM rowlock_job AS job
        WHERE {in_room job} AND job.limit_key >= :start
    )
    UNION ALL
    SELECT (
        SELECT min(job.limit_key)
        FROM rowlock_job AS job
        WHERE {in_room job} AND job.limit_key > room.limit_key
    )
    FROM room
    WHERE room.limit_key IS NOT NULL
    LIMIT :visits
)
SELECT room.limit_key, (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM rowlock_job AS job
        WHERE {in_room job} AND job.limit_key = room.limit_key
        LIMIT :cap
    )
)
FROM room
WHERE room.limit_key IS NOT NULL

-- name: busy_keys (postgres)
-- Keys of a limit from a place on that have running jobs, by a loose scan of job_turn, and those
-- that were paused or have numbers of their own. Uses limit_key_chosen.
WITH RECURSIVE running AS (
    (
        SELECT job.limit_key
        FROM rowlock.job AS job
        WHERE {under_limit job} AND job.limit_key >= :start
        ORDER BY job.limit_key
        LIMIT 1
    )
    UNION ALL
    SELECT next.limit_key
    FROM running CROSS JOIN LATERAL (
        SELECT job.limit_key
        FROM rowlock.job AS job
        WHERE {under_limit job} AND job.limit_key > running.limit_key
        ORDER BY job.limit_key
        LIMIT 1
    ) AS next
)
SELECT seen.limit_key, true
FROM (SELECT limit_key FROM running LIMIT :visits) AS seen
UNION ALL
SELECT chosen.key, false
FROM (
    SELECT state.key
    FROM rowlock.limit_key AS state
    WHERE state.limit_name = :limit_name AND {chosen_key state} AND state.key >= :start
    ORDER BY state.key
    LIMIT :visits
) AS chosen

-- name: busy_keys (sqlite)
-- Keys of a limit from a place on that have running jobs, by a loose scan of job_turn, and those
-- that were paused or have numbers of their own. Uses limit_key_chosen.
WITH RECURSIVE running (limit_key) AS (
    SELECT * FROM (
        SELECT min(job.limit_key)
        FROM rowlock_job AS job
        WHERE {under_limit job} AND job.limit_key >= :start
    )
    UNION ALL
    SELECT (
        SELECT min(job.limit_key)
        FROM rowlock_job AS job
        WHERE {under_limit job} AND job.limit_key > running.limit_key
    )
    FROM running
    WHERE running.limit_key IS NOT NULL
    LIMIT :visits
)
SELECT running.limit_key, true
FROM running
WHERE running.limit_key IS NOT NULL
UNION ALL
SELECT chosen.key, false
FROM (
    SELECT state.key
    FROM rowlock_limit_key AS state
    WHERE state.limit_name = :limit_name AND {chosen_key state} AND state.key >= :start
    ORDER BY state.key
    LIMIT :visits
) AS chosen

-- name: key_states (postgres)
-- What counts for keys of a limit: (key, its numbers, its weight, whether one is its own, until
-- when and why it is closed, when it lets a job start, how many of its jobs run, up to a cap and
-- optionally only those of one tenant, since when the longest). Uses limit_key_pkey, job_turn.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
seen AS MATERIALIZED (
    SELECT asked.key, state.weight, {key_rules state}, state.closed_by,
        coalesce(state.concurrency, state.interval_us, state.weight) IS NOT NULL AS is_own
    FROM unnest(:keys::text[]) AS asked (key) CROSS JOIN rowlock.job_limit AS rule
        LEFT JOIN rowlock.limit_key AS state
        ON state.limit_name = :limit_name AND state.key = asked.key
    WHERE rule.name = :limit_name
)
SELECT seen.key, seen.concurrency, seen.interval_us, seen.burst, seen.weight, seen.is_own,
    seen.closed_until, seen.closed_by, {open_at seen}, running.jobs, running.oldest
FROM seen CROSS JOIN LATERAL (
    SELECT count(*) FILTER (
        WHERE :tenant::text IS NULL OR capped.tenant = :tenant::text
    ) AS jobs, min(capped.started_at) AS oldest
    FROM (
        SELECT job.tenant, job.started_at
        FROM rowlock.job AS job
        WHERE {under_limit job} AND job.limit_key = seen.key
        LIMIT :cap
    ) AS capped
) AS running

-- name: key_states (sqlite)
-- What counts for keys of a limit: (key, its numbers, its weight, whether one is its own, until
-- when and why it is closed, when it lets a job start, how many of its jobs run, up to a cap and
-- optionally only those of one tenant, since when the longest). Uses the primary key, job_turn.
WITH seen AS MATERIALIZED (
    SELECT asked.value AS key, state.weight, {key_rules state}, state.closed_by,
        coalesce(state.concurrency, state.interval_us, state.weight) IS NOT NULL AS is_own
    FROM json_each(:keys) AS asked CROSS JOIN rowlock_job_limit AS rule
        LEFT JOIN rowlock_limit_key AS state
        ON state.limit_name = :limit_name AND state.key = asked.value
    WHERE rule.name = :limit_name
)
SELECT seen.key, seen.concurrency, seen.interval_us, seen.burst, seen.weight, seen.is_own,
    seen.closed_until, seen.closed_by, {open_at seen}, (
        SELECT count(*) FILTER (WHERE :tenant IS NULL OR capped.tenant = :tenant)
        FROM (
            SELECT job.tenant
            FROM rowlock_job AS job
            WHERE {under_limit job} AND job.limit_key = seen.key
            LIMIT :cap
        ) AS capped
    ), (
        SELECT min(capped.started_at)
        FROM (
            SELECT job.started_at
            FROM rowlock_job AS job
            WHERE {under_limit job} AND job.limit_key = seen.key
            LIMIT :cap
        ) AS capped
    )
FROM seen

-- name: queue_names (postgres)
-- The names of all queues in use, each by one probe. Uses job_lane, job_room, job_outside,
-- job_waiting, job_lease, finished_queue.
WITH RECURSIVE waiting AS (
    (
        SELECT min(job.queue) AS queue
        FROM rowlock.job AS job
        WHERE job.indexed_lease IS NULL AND job.held_by IS NULL
    )
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock.job AS job
        WHERE job.indexed_lease IS NULL AND job.held_by IS NULL AND job.queue > waiting.queue
    )
    FROM waiting
    WHERE waiting.queue IS NOT NULL
),
at_limit AS (
    (
        SELECT min(job.queue) AS queue
        FROM rowlock.job AS job
        WHERE job.indexed_lease IS NULL AND job.held_by = 1
    )
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock.job AS job
        WHERE job.indexed_lease IS NULL AND job.held_by = 1 AND job.queue > at_limit.queue
    )
    FROM at_limit
    WHERE at_limit.queue IS NOT NULL
),
after_others AS (
    (
        SELECT min(job.queue) AS queue
        FROM rowlock.job AS job
        WHERE job.held_by = 3
    )
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock.job AS job
        WHERE job.held_by = 3 AND job.queue > after_others.queue
    )
    FROM after_others
    WHERE after_others.queue IS NOT NULL
),
outside AS (
    (
        SELECT min(job.queue) AS queue
        FROM rowlock.job AS job
        WHERE job.indexed_lease IS NULL AND job.held_by = 2
    )
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock.job AS job
        WHERE job.indexed_lease IS NULL AND job.held_by = 2 AND job.queue > outside.queue
    )
    FROM outside
    WHERE outside.queue IS NOT NULL
),
ended AS (
    (
        SELECT min(finished.queue) AS queue
        FROM rowlock.finished AS finished
        WHERE finished.state <> 'succeeded'
    )
    UNION ALL
    SELECT (
        SELECT min(finished.queue)
        FROM rowlock.finished AS finished
        WHERE finished.state <> 'succeeded' AND finished.queue > ended.queue
    )
    FROM ended
    WHERE ended.queue IS NOT NULL
)
SELECT queue FROM waiting WHERE queue IS NOT NULL
UNION
SELECT queue FROM at_limit WHERE queue IS NOT NULL
UNION
SELECT queue FROM outside WHERE queue IS NOT NULL
UNION
SELECT queue FROM after_others WHERE queue IS NOT NULL
UNION
SELECT job.queue FROM rowlock.job AS job WHERE job.indexed_lease IS NOT NULL
UNION
SELECT queue FROM ended WHERE queue IS NOT NULL
UNION
SELECT queue.name FROM rowlock.queue AS queue
ORDER BY 1

-- name: queue_names (sqlite)
-- The names of all queues in use, each by one probe. Uses job_lane, job_room, job_outside,
-- job_waiting, job_lease, finished_queue.
WITH RECURSIVE waiting AS (
    SELECT min(job.queue) AS queue
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL AND job.held_by IS NULL
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock_job AS job
        WHERE job.lease_expires_at IS NULL AND job.held_by IS NULL AND job.queue > waiting.queue
    )
    FROM waiting
    WHERE waiting.queue IS NOT NULL
),
at_limit AS (
    SELECT min(job.queue) AS queue
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL AND job.held_by = 1
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock_job AS job
        WHERE job.lease_expires_at IS NULL AND job.held_by = 1 AND job.queue > at_limit.queue
    )
    FROM at_limit
    WHERE at_limit.queue IS NOT NULL
),
after_others AS (
    SELECT min(job.queue) AS queue
    FROM rowlock_job AS job
    WHERE job.held_by = 3
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock_job AS job
        WHERE job.held_by = 3 AND job.queue > after_others.queue
    )
    FROM after_others
    WHERE after_others.queue IS NOT NULL
),
outside AS (
    SELECT min(job.queue) AS queue
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL AND job.held_by = 2
    UNION ALL
    SELECT (
        SELECT min(job.queue)
        FROM rowlock_job AS job
        WHERE job.lease_expires_at IS NULL AND job.held_by = 2 AND job.queue > outside.queue
    )
    FROM outside
    WHERE outside.queue IS NOT NULL
),
ended AS (
    SELECT min(finished.queue) AS queue
    FROM rowlock_finished AS finished
    WHERE finished.state <> 'succeeded'
    UNION ALL
    SELECT (
        SELECT min(finished.queue)
        FROM rowlock_finished AS finished
        WHERE finished.state <> 'succeeded' AND finished.queue > ended.queue
    )
    FROM ended
    WHERE ended.queue IS NOT NULL
)
SELECT queue FROM waiting WHERE queue IS NOT NULL
UNION
SELECT queue FROM at_limit WHERE queue IS NOT NULL
UNION
SELECT queue FROM outside WHERE queue IS NOT NULL
UNION
SELECT queue FROM after_others WHERE queue IS NOT NULL
UNION
SELECT job.queue FROM rowlock_job AS job WHERE job.lease_expires_at IS NOT NULL
UNION
SELECT queue FROM ended WHERE queue IS NOT NULL
UNION
SELECT queue.name FROM rowlock_queue AS queue
ORDER BY 1

-- name: paused_queues
-- The queues that are paused.
SELECT queue.name
FROM rowlock.queue AS queue
WHERE queue.is_paused

-- name: all_lanes (postgres)
-- Every lane of these queues and the time of its head, by a loose scan of job_lane.
WITH RECURSIVE lane AS (
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM unnest(:queues::text[]) AS asked (queue) CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at
        FROM rowlock.job AS job
        WHERE job.queue = asked.queue AND {waiting job}
        ORDER BY job.rank, job.kind, job.run_at
        LIMIT 1
    ) AS head
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM lane CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at
        FROM rowlock.job AS job
        WHERE job.queue = lane.queue AND {waiting job}
            AND (job.rank, job.kind) > (lane.rank, lane.kind)
        ORDER BY job.rank, job.kind, job.run_at
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, lane.run_at
FROM lane

-- name: all_lanes (sqlite)
-- Every lane of these queues and the time of its head, by a loose scan of job_lane.
WITH RECURSIVE lane AS (
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM json_each(:queues) AS asked CROSS JOIN rowlock_job AS head ON head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE job.queue = asked.value AND {waiting job}
        ORDER BY job.rank, job.kind, job.run_at
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.queue = lane.queue AND {waiting job}
                AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.queue = lane.queue AND {waiting job}
                AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, lane.run_at
FROM lane

-- name: count_lanes (postgres)
-- How many jobs of each lane are due, and how many wait, up to a cap. Uses job_lane alone.
SELECT lane.queue, due.jobs, later.jobs, {now}
FROM unnest(:queue::text[], :rank::smallint[], :kind::text[]) AS lane (queue, rank, kind),
    LATERAL (
        SELECT count(*) AS jobs
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.queue = lane.queue AND job.rank = lane.rank AND job.kind = lane.kind
                AND {waiting job} AND job.run_at <= (SELECT {now})
            LIMIT :cap
        ) AS capped
    ) AS due,
    LATERAL (
        SELECT count(*) AS jobs
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.queue = lane.queue AND job.rank = lane.rank AND job.kind = lane.kind
                AND {waiting job} AND job.run_at > (SELECT {now})
            LIMIT :cap
        ) AS capped
    ) AS later

-- name: count_lanes (sqlite)
-- How many jobs of a lane are due, and how many wait, up to a cap. Uses job_lane alone.
SELECT
    :queue,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.queue = :queue AND job.rank = :rank AND job.kind = :kind
                AND {waiting job} AND job.run_at <= {now}
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.queue = :queue AND job.rank = :rank AND job.kind = :kind
                AND {waiting job} AND job.run_at > {now}
            LIMIT :cap
        )
    ),
    {now}

-- name: count_held (postgres)
-- Jobs with a limit of each queue that wait, up to a cap: (queue, those in their rooms, the oldest
-- that is due, others that are due, others), and those that wait for other jobs. Uses job_room,
-- job_outside and job_waiting alone.
SELECT asked.queue, room.jobs, least(room.oldest, outside.oldest), outside.due, outside.later, (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.queue = asked.queue AND job.held_by = 3
            LIMIT :cap
        ) AS capped
    ), {now}
FROM unnest(:queue::text[]) AS asked (queue),
    LATERAL (
        SELECT count(*) AS jobs, min(capped.run_at) AS oldest
        FROM (
            SELECT job.run_at
            FROM rowlock.job AS job
            WHERE job.queue = asked.queue AND job.indexed_lease IS NULL AND job.held_by = 1
            LIMIT :cap
        ) AS capped
    ) AS room,
    LATERAL (
        SELECT count(*) FILTER (WHERE capped.run_at <= (SELECT {now})) AS due,
            count(*) FILTER (WHERE capped.run_at > (SELECT {now})) AS later,
            min(capped.run_at) FILTER (WHERE capped.run_at <= (SELECT {now})) AS oldest
        FROM (
            SELECT job.run_at
            FROM rowlock.job AS job
            WHERE job.queue = asked.queue AND job.indexed_lease IS NULL AND job.held_by = 2
            LIMIT :cap
        ) AS capped
    ) AS outside

-- name: count_held (sqlite)
-- Jobs with a limit of a queue that wait, up to a cap: (queue, those in their rooms, the oldest
-- that is due, others that are due, others), and those that wait for other jobs. Uses job_room,
-- job_outside and job_waiting alone.
SELECT :queue, room.jobs,
    coalesce(min(room.oldest, outside.oldest), room.oldest, outside.oldest),
    outside.due, outside.later, (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.queue = :queue AND job.held_by = 3
            LIMIT :cap
        )
    ), {now}
FROM (
    SELECT count(*) AS jobs, min(capped.run_at) AS oldest
    FROM (
        SELECT job.run_at
        FROM rowlock_job AS job
        WHERE job.queue = :queue AND job.lease_expires_at IS NULL AND job.held_by = 1
        LIMIT :cap
    ) AS capped
) AS room,
(
    SELECT count(*) FILTER (WHERE capped.run_at <= {now}) AS due,
        count(*) FILTER (WHERE capped.run_at > {now}) AS later,
        min(capped.run_at) FILTER (WHERE capped.run_at <= {now}) AS oldest
    FROM (
        SELECT job.run_at
        FROM rowlock_job AS job
        WHERE job.queue = :queue AND job.lease_expires_at IS NULL AND job.held_by = 2
        LIMIT :cap
    ) AS capped
) AS outside

-- name: count_queues (postgres)
-- The other counts of each queue, up to a cap: (queue, retrying, running, dead, cancelled, paused).
-- Uses job_retried, finished_queue, and walks job_lease and the claims: the running.
SELECT asked.queue,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.job AS job
            WHERE job.queue = asked.queue AND job.indexed_lease IS NULL
                AND job.lease_expires_at IS NULL AND job.is_retry
                AND job.run_at > job.created_at
                AND job.run_at > (SELECT {now})
            LIMIT :cap
        ) AS capped
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM ({running job}) AS job
            WHERE job.queue = asked.queue
            LIMIT :cap
        ) AS capped
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.finished AS finished
            WHERE finished.queue = asked.queue AND finished.state = 'dead'
            LIMIT :cap
        ) AS capped
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM rowlock.finished AS finished
            WHERE finished.queue = asked.queue AND finished.state = 'cancelled'
            LIMIT :cap
        ) AS capped
    ),
    coalesce(
        (SELECT queue.is_paused FROM rowlock.queue AS queue WHERE queue.name = asked.queue), false
    )
FROM unnest(:queue::text[]) AS asked (queue)

-- name: count_queues (sqlite)
-- The other counts of a queue, up to a cap: (queue, retrying, running, dead, cancelled, paused).
-- Uses job_retried, job_lease, finished_queue: the last only where its own condition is repeated,
-- because SQLite does not see that one follows from the other.
SELECT :queue,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.queue = :queue AND job.lease_expires_at IS NULL AND job.attempt > 0
                AND job.run_at > job.created_at
                AND job.run_at > {now}
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NOT NULL AND job.queue = :queue
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_finished AS finished
            WHERE finished.queue = :queue AND finished.state = 'dead'
                AND finished.state <> 'succeeded'
            LIMIT :cap
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM rowlock_finished AS finished
            WHERE finished.queue = :queue AND finished.state = 'cancelled'
                AND finished.state <> 'succeeded'
            LIMIT :cap
        )
    ),
    coalesce(
        (SELECT queue.is_paused FROM rowlock_queue AS queue WHERE queue.name = :queue), 0
    )

-- name: count_live (postgres)
-- All live jobs by queue: (queue, ready, due later, retrying, running, waiting). Reads job_lane,
-- job_room, job_outside, job_waiting, job_retried and job_lease to their ends: exact, and for
-- occasional use. job_lane and
-- job_retried have jobs whose leases are noted in claims: these are counted there and taken off, so
-- that no row of the table is read.
SELECT counted.queue, sum(counted.due), sum(counted.later), sum(counted.back),
    sum(counted.running), sum(counted.waiting)
FROM (
    SELECT job.queue, count(*) FILTER (WHERE job.run_at <= (SELECT {now})) AS due,
        count(*) FILTER (WHERE job.run_at > (SELECT {now})) AS later,
        0 AS back, 0 AS running, 0 AS waiting
    FROM rowlock.job AS job
    WHERE job.indexed_lease IS NULL AND job.held_by IS NULL
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, count(*), 0, 0, 0, 0
    FROM rowlock.job AS job
    WHERE job.indexed_lease IS NULL AND job.held_by = 1
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, count(*) FILTER (WHERE job.run_at <= (SELECT {now})),
        count(*) FILTER (WHERE job.run_at > (SELECT {now})), 0, 0, 0
    FROM rowlock.job AS job
    WHERE job.indexed_lease IS NULL AND job.held_by = 2
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, count(*), 0, 0
    FROM rowlock.job AS job
    WHERE job.indexed_lease IS NULL AND job.is_retry AND job.run_at > job.created_at
        AND job.run_at > (SELECT {now})
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, 0, 0, count(*)
    FROM rowlock.job AS job
    WHERE job.held_by = 3
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, 0, count(*), 0
    FROM rowlock.job AS job
    WHERE job.indexed_lease IS NOT NULL
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, -count(*) FILTER (WHERE job.run_at <= (SELECT {now})),
        -count(*) FILTER (WHERE job.run_at > (SELECT {now})),
        -count(*) FILTER (
            WHERE job.is_retry AND job.run_at > job.created_at AND job.run_at > (SELECT {now})
        ),
        count(*), 0
    FROM ({noted claim}) AS job
    GROUP BY job.queue
) AS counted
GROUP BY counted.queue

-- name: count_live (sqlite)
-- All live jobs by queue: (queue, ready, due later, retrying, running, waiting). Reads job_lane,
-- job_room, job_outside, job_waiting, job_retried and job_lease to their ends: exact, and for
-- occasional use.
SELECT counted.queue, sum(counted.due), sum(counted.later), sum(counted.back),
    sum(counted.running), sum(counted.waiting)
FROM (
    SELECT job.queue, count(*) FILTER (WHERE job.run_at <= (SELECT {now})) AS due,
        count(*) FILTER (WHERE job.run_at > (SELECT {now})) AS later,
        0 AS back, 0 AS running, 0 AS waiting
    FROM rowlock_job AS job
    WHERE {waiting job}
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, count(*), 0, 0, 0, 0
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL AND job.held_by = 1
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, count(*) FILTER (WHERE job.run_at <= {now}),
        count(*) FILTER (WHERE job.run_at > {now}), 0, 0, 0
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL AND job.held_by = 2
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, count(*), 0, 0
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NULL AND job.attempt > 0 AND job.run_at > job.created_at
        AND job.run_at > (SELECT {now})
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, 0, 0, count(*)
    FROM rowlock_job AS job
    WHERE job.held_by = 3
    GROUP BY job.queue
    UNION ALL
    SELECT job.queue, 0, 0, 0, count(*), 0
    FROM rowlock_job AS job
    WHERE job.lease_expires_at IS NOT NULL
    GROUP BY job.queue
) AS counted
GROUP BY counted.queue

-- name: count_finished
-- All finished jobs by queue and state. Reads the whole table: there is no index by queue for
-- succeeded jobs, so this is for occasional use.
SELECT finished.queue, finished.state, count(*)
FROM rowlock.finished AS finished
GROUP BY finished.queue, finished.state

-- name: count_succeeded
-- Succeeded jobs by queue among the newest rows, and how many rows were read.
-- Walks finished_pkey from its end, up to a bound.
WITH newest AS MATERIALIZED (
    SELECT finished.queue, finished.state
    FROM rowlock.finished AS finished
    ORDER BY finished.id DESC
    LIMIT :scan
)
SELECT newest.queue, count(*) FILTER (WHERE newest.state = 'succeeded'),
    (SELECT count(*) FROM newest)
FROM newest
GROUP BY newest.queue

-- name: count_tenant (postgres)
-- Jobs of a tenant by queue and state, and the oldest of each. Reads at most :scan rows per table.
-- Uses job_tenant_lane and job_tenant_held for waiting jobs, job_lease and the claims for running
-- ones, finished_pkey for ended ones.
SELECT counted.queue, counted.state, count(*), min(counted.run_at)
FROM (
    SELECT waiting.queue, waiting.run_at,
        CASE
            WHEN waiting.held_by = 3 THEN 'waiting'
            WHEN waiting.run_at <= (SELECT {now}) THEN 'ready'
            WHEN waiting.attempt = 0 THEN 'scheduled'
            ELSE 'retrying'
        END AS state
    FROM (
        SELECT job.queue, job.run_at, job.attempt, job.held_by
        FROM rowlock.job AS job
        WHERE job.tenant = :tenant AND {waiting job}
        UNION ALL
        SELECT job.queue, job.run_at, job.attempt, job.held_by
        FROM rowlock.job AS job
        WHERE job.tenant = :tenant AND job.indexed_lease IS NULL AND job.held_by IS NOT NULL
        LIMIT :scan
    ) AS waiting
    UNION ALL
    SELECT running.queue, running.run_at, 'running'
    FROM (
        SELECT job.queue, job.run_at
        FROM ({running job}) AS job
        WHERE job.tenant = :tenant
        LIMIT :scan
    ) AS running
    UNION ALL
    SELECT ended.queue, ended.run_at, ended.state
    FROM (
        SELECT finished.queue, finished.run_at, finished.state, finished.tenant
        FROM rowlock.finished AS finished
        ORDER BY finished.id DESC
        LIMIT :scan
    ) AS ended
    WHERE ended.tenant = :tenant
) AS counted
GROUP BY counted.queue, counted.state

-- name: count_tenant (sqlite)
-- Jobs of a tenant by queue and state, and the oldest of each. Reads at most :scan rows per table.
-- Uses job_tenant_lane and job_tenant_held for waiting jobs, job_lease for running ones,
-- finished_pkey for ended ones.
SELECT counted.queue, counted.state, count(*), min(counted.run_at)
FROM (
    SELECT waiting.queue, waiting.run_at,
        CASE
            WHEN waiting.held_by = 3 THEN 'waiting'
            WHEN waiting.run_at <= (SELECT {now}) THEN 'ready'
            WHEN waiting.attempt = 0 THEN 'scheduled'
            ELSE 'retrying'
        END AS state
    FROM (
        SELECT job.queue, job.run_at, job.attempt, job.held_by
        FROM rowlock_job AS job
        WHERE job.tenant = :tenant AND {waiting job}
        UNION ALL
        SELECT job.queue, job.run_at, job.attempt, job.held_by
        FROM rowlock_job AS job
        WHERE job.tenant = :tenant AND job.lease_expires_at IS NULL AND job.held_by IS NOT NULL
        LIMIT :scan
    ) AS waiting
    UNION ALL
    SELECT running.queue, running.run_at, 'running'
    FROM (
        SELECT job.queue, job.run_at
        FROM rowlock_job AS job
        WHERE job.tenant = :tenant AND job.lease_expires_at IS NOT NULL
        LIMIT :scan
    ) AS running
    UNION ALL
    SELECT ended.queue, ended.run_at, ended.state
    FROM (
        SELECT finished.queue, finished.run_at, finished.state, finished.tenant
        FROM rowlock_finished AS finished
        ORDER BY finished.id DESC
        LIMIT :scan
    ) AS ended
    WHERE ended.tenant = :tenant
) AS counted
GROUP BY counted.queue, counted.state

-- name: finished_beyond
-- Whether there are more finished jobs than a bound. Uses finished_pkey.
SELECT count(*)
FROM (
    SELECT finished.id
    FROM rowlock.finished AS finished
    ORDER BY finished.id DESC
    LIMIT 1 OFFSET :scan
) AS beyond

-- name: leased
-- How many jobs of each queue each worker holds. Walks job_lease and the claims: the running.
SELECT held.worker, held.queue, count(*)
FROM (
    SELECT job.worker, job.queue
    FROM ({running job}) AS job
    LIMIT :limit
) AS held
GROUP BY held.worker, held.queue

-- name: lock_leases
-- Lock live jobs by id until the transaction ends, in one order. Uses job_pkey.
SELECT {held}, job.lease_taken, {now}
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
ORDER BY job.id
FOR UPDATE OF job

-- fragment: is_plain (postgres)
-- Whether a job belongs to no workflow. As a CASE, here and in the next: the planner then expects
-- every second job to pass. Without statistics it expected one of 200, and compared each of 100
-- jobs with each of 100 outcomes (20 ms instead of 2).
CASE WHEN {of}.workflow IS NULL THEN true END

-- fragment: is_waiting (postgres)
-- Whether a job waits for others.
CASE WHEN {of}.held_by = 3 THEN true END

-- fragment: ended_and (postgres)
-- The jobs that end, removed from the live table, with the new values of their columns.
{of} AS (
    DELETE FROM rowlock.job AS job
    USING unnest(
        :id::uuid[], :token::bigint[], :leased::boolean[], :taken::boolean[], :state::text[],
        :result::text[], :errors::text[], :crashes::integer[], :keep::bigint[],
        :fingerprint::text[]{steps? , :cause::smallint[]}
    ) AS ending (
        id, token, leased, taken, state, result, errors, crashes, keep, fingerprint
        {steps? , cause}
    )
    WHERE job.id = ending.id
        AND job.id = ANY(:id::uuid[])
        AND job.token = ending.token
        AND (job.lease_expires_at IS NOT NULL) = ending.leased
        {steps? | AND {is_plain job}}
    RETURNING
        {steps? {settled} | {plain_settled}},
        ending.state, ending.result, ending.keep, ending.fingerprint
        {steps? , ending.cause}
)

-- fragment: kept_from (postgres)
-- From when on an ended job of a workflow is kept for its time: a dead one at once, others when the
-- whole workflow has ended. Until then they are kept from year 9987 on.
CASE WHEN {of}.state = 'dead' THEN clock.now ELSE 253000000000000000 END

-- fragment: kept_from (sqlite)
CASE WHEN {of}.state = 'dead' THEN {now} ELSE 253000000000000000 END

-- fragment: held_at (postgres)
-- Where a job is held once it waits for no other.
CASE
    WHEN {of}.limit_name IS NULL THEN NULL
    WHEN {of}.run_at < 0 OR {of}.run_at > clock.now THEN 2
    ELSE 1
END

-- fragment: held_at (sqlite)
CASE
    WHEN {of}.limit_name IS NULL THEN NULL
    WHEN {of}.run_at < 0 OR {of}.run_at > {now} THEN 2
    ELSE 1
END

-- fragment: due_at (postgres)
-- When a job is due that waits for no other from now on.
CASE WHEN {of}.run_at < 0 THEN clock.now - {of}.run_at ELSE greatest({of}.run_at, clock.now) END

-- fragment: due_at (sqlite)
CASE WHEN {of}.run_at < 0 THEN {now} - {of}.run_at ELSE max({of}.run_at, {now}) END

-- fragment: place_of (postgres)
-- The place of a job that waits for no other from now on, if the jobs of its limit run in order.
CASE
    WHEN {of}.limit_name IS NOT NULL
        AND (SELECT own.is_ordered FROM rowlock.job_limit AS own WHERE own.name = {of}.limit_name)
    THEN nextval('rowlock.turn_number')
END

-- fragment: place_of (sqlite)
CASE
    WHEN {of}.limit_name IS NOT NULL
        AND (SELECT own.is_ordered FROM rowlock_job_limit AS own WHERE own.name = {of}.limit_name)
    THEN max({now}, 1 + coalesce((
        SELECT max(other.place)
        FROM rowlock_job AS other
        WHERE other.limit_name = {of}.limit_name AND other.limit_key = {of}.limit_key
            AND other.place IS NOT NULL
    ), 0))
END

-- name: finish (postgres)
-- Move jobs out of the live table into a terminal state; fenced by token. Uses job_pkey.
-- NULL errors or crashes keep the stored ones; keep: -1 forever. For jobs that are kept longer than
-- ids are remembered, and whose key is held by their row alone: the common case.
-- The ids are given twice, here and wherever many jobs are changed: if the statistics say that the
-- table is empty, as they do while a queue is, the join alone was planned as a scan of the whole
-- table for each id (500 of 20,000 jobs: 15.8 s instead of 1 ms).
-- The variant `steps` is for jobs of workflows whose end is not a plain success: its consequences
-- are decided step by step.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
{ended_and gone},
kept AS (
    INSERT INTO rowlock.finished (
        {steps? {shared} | {plain}},
    state, result, finished_at, expires_at, fingerprint{steps? , cause}
    )
    SELECT {steps? {shared} | {plain}}, state, result, clock.now,
        CASE WHEN keep >= 0 THEN keep + {steps? {kept_from gone} | clock.now} END,
        fingerprint{steps? , cause}
    FROM gone, clock
    ON CONFLICT (id) DO NOTHING
),
{over_claims over}
SELECT id::text
FROM gone

-- name: finish (sqlite)
-- Move jobs out of the live table into a terminal state; fenced by token. Uses the primary key.
-- NULL errors or crashes keep the stored ones; keep: -1 forever. For jobs that are kept longer than
-- ids are remembered, and whose key is held by their row alone: the common case.
WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint
    {steps? , cause}}
)
INSERT INTO rowlock_finished (
    {steps? {shared} | {plain}},
    state, result, finished_at, expires_at, fingerprint{steps? , cause}
)
SELECT {steps? {settled} | {plain_settled}}, ending.state, ending.result, {now},
    CASE WHEN ending.keep >= 0 THEN ending.keep + {steps? {kept_from ending} | {now}} END,
    ending.fingerprint{steps? , ending.cause}
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
    {steps? | AND job.workflow IS NULL}
ON CONFLICT (id) DO NOTHING;

WITH ending AS MATERIALIZED (
    {rows id, token, leased}
)
DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
        {steps? | AND job.workflow IS NULL}
)
RETURNING id

-- name: finish_bare (postgres)
-- As finish, for successes without a result, all under one token and kept for the same time. Uses
-- job_pkey. Without ON CONFLICT, which took 1.3 µs per row: a row that exists already fails the
-- statement, and the caller then uses finish.
-- One row with NULL if all were still held, as nearly always: the caller knows their ids.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
gone AS (
    DELETE FROM rowlock.job AS job
    WHERE job.id = ANY (:ids::uuid[])
        AND job.token = :token::bigint
        AND job.lease_expires_at IS NOT NULL
        AND job.workflow IS NULL
    RETURNING {plain_job}
),
kept AS (
    INSERT INTO rowlock.finished ({plain}, state, finished_at, expires_at)
    SELECT {plain}, 'succeeded', clock.now,
        CASE WHEN :keep::bigint >= 0 THEN clock.now + :keep::bigint END
    FROM gone, clock
),
{over_claims over},
missed AS MATERIALIZED (
    SELECT cardinality(:ids::uuid[]) - count(*) AS jobs
    FROM gone
)
SELECT NULL::text
FROM missed
WHERE missed.jobs = 0
UNION ALL
SELECT gone.id::text
FROM gone, missed
WHERE missed.jobs > 0

-- name: finish_bare (sqlite)
-- As finish, for successes without a result, all under one token and kept for the same time. Uses
-- the primary key.
INSERT INTO rowlock_finished ({plain}, state, finished_at, expires_at)
SELECT {plain_job}, 'succeeded', {now}, CASE WHEN :keep >= 0 THEN {now} + :keep END
FROM json_each(:ids) AS ending CROSS JOIN rowlock_job AS job ON job.id = ending.value
WHERE job.token = :token AND job.lease_expires_at IS NOT NULL AND job.workflow IS NULL
ON CONFLICT (id) DO NOTHING;

DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM json_each(:ids) AS ending CROSS JOIN rowlock_job AS job ON job.id = ending.value
    WHERE job.token = :token AND job.lease_expires_at IS NOT NULL AND job.workflow IS NULL
)
RETURNING id

-- name: finish_nodes (postgres)
-- As finish, for successes of jobs in workflows, all under one token and kept for the same time.
-- The jobs that wait for them count them, locked in the order of their ids, and are released with
-- the last. Uses job_pkey and edge_pkey.
-- One row with NULL if all were still held, and one for each queue that gets a job. (As two
-- statements: 0.36 to 0.65 of plain jobs instead of 0.60 to 0.89.)
-- Nothing is joined: a plan that was made while the tables were empty compared each of 100 jobs
-- with each of 100 results and counts (20 ms instead of 4). Searching an array takes 15 ns per
-- element.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
gone AS (
    DELETE FROM rowlock.job AS job
    WHERE job.id = ANY (:id::uuid[])
        AND job.token = :token::bigint
        AND job.lease_expires_at IS NOT NULL
        AND job.watched IS NULL
    RETURNING {shared_job}
),
kept AS (
    INSERT INTO rowlock.finished ({shared}, state, result, finished_at, expires_at)
    SELECT {shared}, 'succeeded', (:result::text[])[array_position(:id::uuid[], gone.id)],
        clock.now, CASE WHEN :keep::bigint >= 0 THEN :keep::bigint + 253000000000000000 END
    FROM gone, clock
    ON CONFLICT (id) DO NOTHING
),
met AS MATERIALIZED (
    SELECT edge.child, count(*)::integer AS number
    FROM (
        SELECT edge.child
        FROM rowlock.edge AS edge
        WHERE edge.parent = ANY (ARRAY(SELECT gone.id FROM gone)) AND NOT edge.is_met
        OFFSET 0
    ) AS edge
    GROUP BY edge.child
),
counts AS MATERIALIZED (
    SELECT ARRAY(SELECT met.child FROM met) AS ids, ARRAY(SELECT met.number FROM met) AS numbers
),
locked AS MATERIALIZED (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.id = ANY (ARRAY(SELECT met.child FROM met)) AND {is_waiting job}
    ORDER BY job.id
    FOR UPDATE OF job
),
freed AS (
    UPDATE rowlock.job AS job
    SET (pending, held_by, run_at, place) = (
        SELECT job.pending - met.number,
            CASE WHEN job.pending > met.number THEN 3 ELSE {held_at job} END,
            CASE WHEN job.pending > met.number THEN job.run_at ELSE {due_at job} END,
            CASE WHEN job.pending > met.number THEN NULL ELSE {place_of job} END
        FROM (SELECT counts.numbers[array_position(counts.ids, job.id)] AS number OFFSET 0) AS met
    )
    FROM clock, counts
    WHERE job.id = ANY (ARRAY(SELECT locked.id FROM locked)) AND {is_waiting job}
    RETURNING job.queue, job.pending
),
{over_claims over},
missed AS MATERIALIZED (
    SELECT cardinality(:id::uuid[]) - count(*) AS jobs
    FROM gone
)
SELECT NULL::text, NULL::text
FROM missed
WHERE missed.jobs = 0
UNION ALL
SELECT gone.id::text, NULL
FROM gone, missed
WHERE missed.jobs > 0
UNION ALL
SELECT '', freed.queue
FROM freed
WHERE freed.pending = 0
GROUP BY freed.queue

-- name: finish_nodes (sqlite)
-- As finish, for successes of jobs in workflows, all under one token and kept for the same time.
-- The jobs that wait for them count them, and are released with the last. Uses the primary keys.
-- (One statement that counts and another that releases took as long where jobs wait for three
-- others, and 5 µs more per job where they wait for jobs that end together.)
WITH ending AS MATERIALIZED (
    {rows id, result}
)
INSERT INTO rowlock_finished ({shared}, state, result, finished_at, expires_at)
SELECT {shared_job}, 'succeeded', ending.result, {now},
    CASE WHEN :keep >= 0 THEN :keep + 253000000000000000 END
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE job.token = :token AND job.lease_expires_at IS NOT NULL
    AND job.watched IS NULL
ON CONFLICT (id) DO NOTHING;

WITH ending AS MATERIALIZED (
    {rows id}
)
UPDATE rowlock_job AS child
SET pending = child.pending - met.number,
    held_by = CASE WHEN child.pending > met.number THEN 3 ELSE {held_at child} END,
    run_at = CASE WHEN child.pending > met.number THEN child.run_at ELSE {due_at child} END,
    place = CASE WHEN child.pending > met.number THEN NULL ELSE {place_of child} END
FROM (
    SELECT edge.child, count(*) AS number
    FROM ending
        CROSS JOIN rowlock_job AS job ON job.id = ending.id
        CROSS JOIN rowlock_edge AS edge ON edge.parent = job.id
    WHERE job.token = :token AND job.lease_expires_at IS NOT NULL
        AND job.watched IS NULL AND NOT edge.is_met
    GROUP BY edge.child
) AS met
WHERE child.id = met.child AND child.held_by = 3;

WITH ending AS MATERIALIZED (
    {rows id}
)
DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE job.token = :token AND job.lease_expires_at IS NOT NULL
        AND job.watched IS NULL
)
RETURNING id, NULL

-- name: finish_held (postgres)
-- As finish, for jobs whose id or key must be remembered beside or after their row. Uses job_pkey.
-- NULL errors or crashes keep the stored ones; keep: -1 forever, 0 not at all.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
{ended_and gone},
kept AS (
    INSERT INTO rowlock.finished (
        {steps? {shared} | {plain}},
    state, result, finished_at, expires_at, fingerprint{steps? , cause}
    )
    SELECT {steps? {shared} | {plain}}, state, result, clock.now,
        CASE WHEN keep >= 0 THEN keep + {steps? {kept_from gone} | clock.now} END,
        fingerprint{steps? , cause}
    FROM gone, clock
    {steps? | WHERE keep <> 0}
    ON CONFLICT (id) DO NOTHING
),
held AS (
    INSERT INTO rowlock.key_hold (
        holder, token, lease_taken, state, kind, queue, tenant, key, key_until, until
    )
    SELECT id, token, lease_taken, state, kind, queue, tenant, key,
        CASE WHEN key_hold > 0 THEN created_at + key_hold END,
        greatest(
            CASE WHEN keep >= 0 THEN clock.now + :remember::bigint ELSE 0 END,
            CASE WHEN key_hold > 0 THEN created_at + key_hold ELSE 0 END
        )
    FROM gone, clock
    WHERE {steps? | (keep >= 0 AND keep < :remember::bigint) OR}
        (key_hold > 0 AND created_at + key_hold > clock.now)
    ON CONFLICT (holder) DO UPDATE
    SET token = excluded.token, lease_taken = excluded.lease_taken, state = excluded.state,
        kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
        key = excluded.key, key_until = excluded.key_until, until = excluded.until
),
unlogged AS (
    DELETE FROM rowlock.log AS log
    USING gone
    WHERE {steps? false | gone.keep = 0} AND gone.log_lines > 0 AND log.job_id = gone.id
),
{over_claims over}
SELECT id::text
FROM gone

-- name: finish_held (sqlite)
-- As finish, for jobs whose id or key must be remembered beside or after their row.
-- NULL errors or crashes keep the stored ones; keep: -1 forever, 0 not at all.
WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint
    {steps? , cause}}
)
INSERT INTO rowlock_finished (
    {steps? {shared} | {plain}},
    state, result, finished_at, expires_at, fingerprint{steps? , cause}
)
SELECT {steps? {settled} | {plain_settled}}, ending.state, ending.result, {now},
    CASE WHEN ending.keep >= 0 THEN ending.keep + {steps? {kept_from ending} | {now}} END,
    ending.fingerprint{steps? , ending.cause}
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
    {steps? | AND ending.keep <> 0 AND job.workflow IS NULL}
ON CONFLICT (id) DO NOTHING;

WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint
    {steps? , cause}}
)
INSERT INTO rowlock_key_hold (
    holder, token, lease_taken, state, kind, queue, tenant, key, key_until, until
)
SELECT job.id, job.token, ending.taken, ending.state, job.kind, job.queue, job.tenant, job.key,
    CASE WHEN job.key_hold > 0 THEN job.created_at + job.key_hold END,
    max(
        CASE WHEN ending.keep >= 0 THEN {now} + :remember ELSE 0 END,
        CASE WHEN job.key_hold > 0 THEN job.created_at + job.key_hold ELSE 0 END
    )
FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
    {steps? | AND job.workflow IS NULL}
    AND (
        {steps? | (ending.keep >= 0 AND ending.keep < :remember) OR}
        (job.key_hold > 0 AND job.created_at + job.key_hold > {now})
    )
ON CONFLICT (holder) DO UPDATE
SET token = excluded.token, lease_taken = excluded.lease_taken, state = excluded.state,
    kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
    key = excluded.key, key_until = excluded.key_until, until = excluded.until;

WITH ending AS MATERIALIZED (
    {rows id, token, leased, taken, state, result, errors, crashes, keep, fingerprint
    {steps? , cause}}
)
DELETE FROM rowlock_log
WHERE job_id IN (
    SELECT job.id
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE {steps? false | ending.keep = 0 AND job.workflow IS NULL} AND job.log_lines > 0
        AND job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
);

WITH ending AS MATERIALIZED (
    {rows id, token, leased}
)
DELETE FROM rowlock_job
WHERE rowid IN (
    SELECT job.rowid
    FROM ending CROSS JOIN rowlock_job AS job ON job.id = ending.id
    WHERE job.token = ending.token AND (job.lease_expires_at IS NOT NULL) = ending.leased
        {steps? | AND job.workflow IS NULL}
)
RETURNING id

-- name: give_back (postgres)
-- Put running jobs back into the queue; fenced by token. Uses job_pkey.
UPDATE rowlock.job AS job
SET run_at = back.run_at,
    attempt = back.attempt,
    crashes = back.crashes,
    losses = back.losses,
    interruptions = back.interruptions,
    quarantined = back.quarantined,
    errors = coalesce(back.errors, job.errors),
    lease_taken = back.taken,
    lease_expires_at = NULL,
    indexed_lease = NULL,
    is_retry = back.attempt > 0,
    held_by = CASE
        WHEN job.limit_name IS NULL THEN NULL WHEN back.run_at > (SELECT {now}) THEN 2 ELSE 1
    END,
    beat_at = NULL,
    worker = NULL,
    begun = false
FROM unnest(
    :id::uuid[], :token::bigint[], :taken::boolean[], :run_at::bigint[], :attempt::integer[],
    :crashes::integer[], :losses::smallint[], :interruptions::smallint[], :quarantined::boolean[],
    :errors::text[]
) AS back (id, token, taken, run_at, attempt, crashes, losses, interruptions, quarantined, errors)
WHERE job.id = back.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = back.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text

-- name: give_back (sqlite)
-- Put a running job back into the queue; fenced by token. Uses the primary key.
UPDATE rowlock_job
SET run_at = :run_at,
    attempt = :attempt,
    crashes = :crashes,
    losses = :losses,
    interruptions = :interruptions,
    quarantined = :quarantined,
    errors = coalesce(:errors, errors),
    lease_taken = :taken,
    lease_expires_at = NULL,
    held_by = CASE WHEN limit_name IS NULL THEN NULL WHEN :run_at > {now} THEN 2 ELSE 1 END,
    beat_at = NULL,
    worker = NULL,
    begun = 0
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id

-- name: find_ends (postgres)
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

-- name: find_ends (sqlite)
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

-- name: owners
-- The tenants of jobs: live, finished, or remembered by their ids. Uses the primary keys.
SELECT job.id::text, job.tenant
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT finished.id::text, finished.tenant
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
UNION ALL
SELECT held.holder::text, held.tenant
FROM rowlock.key_hold AS held
WHERE held.holder = ANY (:ids::uuid[])

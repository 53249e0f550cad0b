-- fragment: waiting (postgres)
-- Whether a job waits in its lane. The last condition is needed because job_lane has jobs whose
-- leases are noted in claims.
{of}.indexed_lease IS NULL AND {of}.held_by IS NULL AND {of}.lease_expires_at IS NULL

-- fragment: waiting (sqlite)
{of}.lease_expires_at IS NULL AND {of}.held_by IS NULL

-- fragment: noted_in (postgres)
-- Whether the lease of a job is noted in a claim. Uses job_lane.
job.queue = {of}.queue AND job.rank = {of}.rank AND job.kind = {of}.kind
AND (job.run_at, job.id) >= ({of}.first_at, {of}.first_id)
AND (job.run_at, job.id) <= ({of}.last_at, {of}.last_id)
AND job.indexed_lease IS NULL AND job.held_by IS NULL
AND job.lease_expires_at = {of}.until
AND job.worker = {of}.worker

-- fragment: noted (postgres)
-- The jobs whose leases are noted in claims. Each is wanted once, and two claims of one worker may
-- have a stretch in common and the same end, where the clock stands still.
SELECT DISTINCT job.id, claim.queue, job.tenant, claim.worker, job.run_at, job.created_at,
    job.is_retry, job.started_at AS beat_at, job.lease_expires_at
FROM rowlock.claim AS claim CROSS JOIN LATERAL (
    SELECT *
    FROM rowlock.job AS job
    WHERE {noted_in claim}
    ORDER BY job.run_at, job.id
) AS job

-- fragment: running (postgres)
-- A query of the running jobs: those in job_lease, and those whose leases are noted in claims.
SELECT {of}.id, {of}.queue, {of}.tenant, {of}.worker, {of}.run_at, {of}.created_at, {of}.is_retry,
    coalesce({of}.beat_at, {of}.started_at) AS beat_at, {of}.lease_expires_at
FROM rowlock.job AS {of}
WHERE {of}.indexed_lease IS NOT NULL
UNION ALL
({noted claim})

-- fragment: running (sqlite)
SELECT {of}.id, {of}.queue, {of}.worker, {of}.beat_at
FROM rowlock_job AS {of}
WHERE {of}.lease_expires_at IS NOT NULL

-- fragment: over_claims (postgres)
-- Claims of which no lease is left are removed with the last of their jobs.
{of} AS (
    DELETE FROM rowlock.claim
    WHERE id = ANY (:claims::uuid[])
)

-- fragment: retried (postgres)
-- Whether a job that waits has had an attempt.
{of}.is_retry

-- fragment: retried (sqlite)
{of}.attempt > 0

-- fragment: run_begun (postgres)
-- What every claim writes into a job's row. `beat_at` stays NULL until the first heartbeat.
SET attempt = job.attempt + 1,
    token = job.token + 1,
    worker = :worker,
    started_at = clock.now,
    lease_expires_at = clock.now + :lease::bigint,
    lease_taken = false,
    begun = :begun::boolean

-- fragment: leased (postgres)
-- What a claim writes whose leases are found by job_lease.
{run_begun job},
    indexed_lease = clock.now + :lease::bigint

-- fragment: leased (sqlite)
SET attempt = attempt + 1,
    token = token + 1,
    worker = :worker,
    started_at = {now},
    beat_at = {now},
    lease_expires_at = {now} + :lease,
    lease_taken = 0,
    begun = :begun

-- fragment: lease (postgres)
-- Lease the first of the candidates that nobody else has locked.
picked AS MATERIALIZED (
    SELECT job.id
    FROM {of} JOIN rowlock.job AS job ON job.id = {of}.id
    WHERE {waiting job}
        AND job.run_at <= (SELECT now FROM clock)
    ORDER BY {of}.run_at, {of}.id
    LIMIT :limit
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE rowlock.job AS job
{leased job}
FROM clock, picked
WHERE job.id = picked.id
RETURNING {job}, clock.now

-- name: lanes (postgres)
-- The lanes of these queues and the head of each, by a loose scan of job_lane: one probe per lane,
-- however many jobs wait in it. The last row holds the current time, whether leases may have
-- expired (uses job_lease, claim_until), how many microseconds all this has taken, and whether
-- there are limits.
-- For some tenants only, job_tenant_lane is scanned.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT {now} AS now
),
open_queue AS MATERIALIZED (
    SELECT asked.queue, coalesce(queue.by_age, false) AS by_age
    FROM unnest(:queues::text[]) AS asked (queue)
        LEFT JOIN rowlock.queue AS queue ON queue.name = asked.queue
    WHERE queue.is_paused IS NOT TRUE
),
lane AS (
    SELECT {tenant? head.tenant,} head.queue, head.rank, head.kind, head.run_at, head.id
    FROM open_queue{tenant? , unnest(:tenants::text[]) AS asked (tenant)} CROSS JOIN LATERAL (
        SELECT {tenant? job.tenant,} job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE {tenant? job.tenant = asked.tenant AND} job.queue = open_queue.queue
            AND {waiting job}
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
    UNION ALL
    SELECT {tenant? head.tenant,} head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN LATERAL (
        SELECT {tenant? job.tenant,} job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE {tenant? job.tenant = lane.tenant AND} job.queue = lane.queue
            AND {waiting job}
            AND (job.rank, job.kind) > (lane.rank, lane.kind)
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, open_queue.by_age, lane.run_at, lane.id::text,
    {tenant? lane.tenant | NULL::text AS tenant}, NULL::bigint AS now, NULL::boolean AS is_late,
    NULL::bigint AS spent, NULL::boolean AS has_limits
FROM lane JOIN open_queue ON open_queue.queue = lane.queue
WHERE :kinds::text[] IS NULL OR lane.kind = ANY (:kinds::text[])
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock.now, :expired::boolean AND (EXISTS (
    -- Sorted, so that job_lease is used even if the planner thinks that there are many leases.
    SELECT FROM (
        SELECT job.queue
        FROM rowlock.job AS job
        WHERE job.indexed_lease <= (SELECT now FROM clock)
        ORDER BY job.indexed_lease
        OFFSET 0
    ) AS late
    WHERE late.queue = ANY (:queues::text[])
) OR EXISTS (
    SELECT FROM (
        SELECT claim.queue
        FROM rowlock.claim AS claim
        WHERE claim.until <= (SELECT now FROM clock)
        ORDER BY claim.until
        OFFSET 0
    ) AS late
    WHERE late.queue = ANY (:queues::text[])
)),
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
    EXISTS (SELECT 1 FROM rowlock.job_limit)
FROM clock

-- name: lanes (sqlite)
-- The lanes of these queues and the head of each, by a loose scan of job_lane: one probe per lane,
-- however many jobs wait in it. The last row holds the current time, whether leases have expired
-- (uses job_lease), how many microseconds all this has taken, estimated as ten per lane, and
-- whether there are limits.
-- For some tenants only, job_tenant_lane is scanned.
WITH RECURSIVE open_queue AS MATERIALIZED (
    SELECT asked.value AS queue, coalesce(queue.by_age, 0) AS by_age
    FROM json_each(:queues) AS asked
        LEFT JOIN rowlock_queue AS queue ON queue.name = asked.value
    WHERE coalesce(queue.is_paused, 0) = 0
),
lane AS MATERIALIZED (
    SELECT {tenant? head.tenant,} head.queue, head.rank, head.kind, head.run_at, head.id
    FROM open_queue {tenant? CROSS JOIN json_each(:tenants) AS asked}
        CROSS JOIN rowlock_job AS head ON head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE {tenant? job.tenant = asked.value AND} job.queue = open_queue.queue
            AND {waiting job}
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT {tenant? head.tenant,} head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {tenant? job.tenant = lane.tenant AND} job.queue = lane.queue
                AND {waiting job} AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {tenant? job.tenant = lane.tenant AND} job.queue = lane.queue
                AND {waiting job} AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, open_queue.by_age, lane.run_at, lane.id,
    {tenant? lane.tenant | NULL}, NULL, NULL, NULL, NULL
FROM lane JOIN open_queue ON open_queue.queue = lane.queue
WHERE :kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, :expired AND EXISTS (
    SELECT 1
    FROM rowlock_job AS job
    WHERE job.lease_expires_at <= {now}
        AND job.queue IN (SELECT value FROM json_each(:queues))
),
    10 * (SELECT count(*) FROM lane), EXISTS (SELECT 1 FROM rowlock_job_limit)

-- name: lanes_anywhere (postgres)
-- As lanes, for every queue: the same loose scan, over all of job_lane.
WITH RECURSIVE lane AS (
    (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE {waiting job}
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE {waiting job}
            AND (job.queue, job.rank, job.kind) > (lane.queue, lane.rank, lane.kind)
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, coalesce(queue.by_age, false), lane.run_at, lane.id::text,
    NULL::text AS tenant, NULL::bigint AS now, NULL::boolean AS is_late, NULL::bigint AS spent,
    NULL::boolean AS has_limits
FROM lane LEFT JOIN rowlock.queue AS queue ON queue.name = lane.queue
WHERE queue.is_paused IS NOT TRUE
    AND (:kinds::text[] IS NULL OR lane.kind = ANY (:kinds::text[]))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, false,
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
    EXISTS (SELECT 1 FROM rowlock.job_limit)

-- name: lanes_anywhere (sqlite)
-- As lanes, for every queue: the same loose scan, over all of job_lane.
WITH RECURSIVE lane AS MATERIALIZED (
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM rowlock_job AS head
    WHERE head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE {waiting job}
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {waiting job}
                AND job.queue = lane.queue AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {waiting job}
                AND job.queue = lane.queue AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {waiting job} AND job.queue > lane.queue
            ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, coalesce(queue.by_age, 0), lane.run_at, lane.id,
    NULL, NULL, NULL, NULL, NULL
FROM lane LEFT JOIN rowlock_queue AS queue ON queue.name = lane.queue
WHERE coalesce(queue.is_paused, 0) = 0
    AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, 0, 10 * (SELECT count(*) FROM lane),
    EXISTS (SELECT 1 FROM rowlock_job_limit)

-- fragment: claimed_from (postgres)
-- A claim of the first due jobs of one lane, up to its RETURNING.
-- Many leases are noted by one row of `claim`: a change of `indexed_lease` would write entries into
-- all indexes. Few are cheaper found by job_lease. So is a job that gives up its key now: job_key
-- knows by `indexed_lease` that it runs.
-- The variant for a lane that a notification named, and nobody has looked at: nothing of a queue
-- that is paused or ordered by age (uses queue_pkey), or that has a job of a higher priority,
-- whether due or not: to read times would be to read all that are not due.
-- The values are read from a row, so that the planner sees the same in every call: if it saw them,
-- it would make a plan for each, in 0.2 ms.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now, :queue::text COLLATE "C" AS queue, :rank::smallint AS rank,
        :kind::text COLLATE "C" AS kind, :floor_at::bigint AS floor_at, :floor_id::uuid AS floor_id,
        :limit::bigint AS jobs
),
picked AS MATERIALIZED (
    SELECT job.ctid, job.run_at, job.id
    FROM rowlock.job AS job
    WHERE job.queue = (SELECT queue FROM clock) AND job.rank = (SELECT rank FROM clock)
        AND job.kind = (SELECT kind FROM clock)
        AND {waiting job}
        AND job.run_at <= (SELECT now FROM clock)
        AND (job.run_at, job.id) >= ((SELECT floor_at FROM clock), (SELECT floor_id FROM clock))
        {hinted? AND NOT EXISTS (
            SELECT FROM rowlock.queue AS queue
            WHERE queue.name = (SELECT queue FROM clock) AND (queue.is_paused OR queue.by_age)
        )
        AND NOT EXISTS (
            SELECT FROM rowlock.job AS urgent
            WHERE urgent.queue = (SELECT queue FROM clock)
                AND urgent.rank < (SELECT rank FROM clock)
                AND {waiting urgent}
        )}
    ORDER BY job.run_at, job.id
    LIMIT (SELECT jobs FROM clock)
    FOR UPDATE SKIP LOCKED
),
manner AS MATERIALIZED (
    SELECT count(*) >= :noted_min::integer AS is_noted
    FROM picked
),
noted AS (
    INSERT INTO rowlock.claim (
        id, until, first_at, first_id, last_at, last_id, rank, queue, kind, worker
    )
    SELECT :claim::uuid, clock.now + :lease::bigint, head.run_at, head.id, tail.run_at, tail.id,
        clock.rank, clock.queue, clock.kind, :worker
    FROM manner, clock,
        (SELECT run_at, id FROM picked ORDER BY run_at, id LIMIT 1) AS head,
        (SELECT run_at, id FROM picked ORDER BY run_at DESC, id DESC LIMIT 1) AS tail
    WHERE manner.is_noted
)
UPDATE rowlock.job AS job
{run_begun job},
    indexed_lease = CASE
        WHEN NOT manner.is_noted OR job.key_hold = -2 THEN clock.now + :lease::bigint
    END
FROM clock, manner
WHERE job.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked))

-- fragment: claimed_from (sqlite)
UPDATE rowlock_job
{leased job}
WHERE rowid IN (
    SELECT due.rowid
    FROM rowlock_job AS due
    WHERE due.queue = :queue AND due.rank = :rank AND due.kind = :kind
        AND {waiting due}
        AND due.run_at <= {now}
        AND (due.run_at, due.id) >= (:floor_at, :floor_id)
        {hinted? AND NOT EXISTS (
            SELECT 1 FROM rowlock_queue AS queue
            WHERE queue.name = :queue AND (queue.is_paused OR queue.by_age)
        )
        AND NOT EXISTS (
            SELECT 1 FROM rowlock_job AS urgent
            WHERE urgent.queue = :queue AND urgent.rank < :rank
                AND {waiting urgent}
        )}
    ORDER BY due.run_at, due.id
    LIMIT :limit
)

-- name: claim (postgres)
-- Lease the first due jobs of one lane. Uses job_lane; takes locks one by one, skips locked rows.
-- Below the floor there was nothing at the claimer's last look, but maybe many dead entries.
-- By ctid, of locked rows: no join, whose plan might be one for an empty table.
{claimed_from lane}
RETURNING {job}, clock.now

-- name: claim (sqlite)
-- Lease the first due jobs of one lane. Uses job_lane.
{claimed_from lane}
RETURNING {row}, {now}

-- name: claim_block (postgres)
-- As claim, with few columns: {block} has the values of most jobs, and one text for all others.
-- Uses job_lane.
{claimed_from lane}
RETURNING {block}, clock.now

-- name: claim_block (sqlite)
-- As claim, with few columns: {block} has the values of most jobs, and one text for all others.
-- Uses job_lane.
{claimed_from lane}
RETURNING {block}, {now}

-- name: claim_mixed (postgres)
-- Lease the first due jobs of several kinds of one queue and rank, in their common order.
-- Uses job_lane once per kind. Candidates are read without a lock, eight times as many as
-- requested, so that seven other claimers may hold the first ones.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
candidate AS MATERIALIZED (
    SELECT head.id, head.run_at
    FROM unnest(:kinds::text[], :floors_at::bigint[], :floors_id::uuid[])
        AS lane (kind, floor_at, floor_id) CROSS JOIN LATERAL (
        SELECT job.id, job.run_at
        FROM rowlock.job AS job
        WHERE job.queue = :queue AND job.rank = :rank::smallint AND job.kind = lane.kind
            AND {waiting job}
            AND job.run_at <= (SELECT now FROM clock)
            AND (job.run_at, job.id) >= (lane.floor_at, lane.floor_id)
        ORDER BY job.run_at, job.id
        LIMIT :limit::bigint * 8
    ) AS head
    ORDER BY head.run_at, head.id
    LIMIT :limit::bigint * 8
),
{lease candidate}

-- name: claim_mixed (sqlite)
-- Lease the first due jobs of several kinds of one queue and rank, in their common order.
-- Uses job_lane once per kind.
UPDATE rowlock_job
{leased job}
WHERE rowid IN (
    SELECT head.rowid
    FROM json_each(:kinds) AS lane
        JOIN json_each(:floors_at) AS floor_at ON floor_at.key = lane.key
        JOIN json_each(:floors_id) AS floor_id ON floor_id.key = lane.key
        CROSS JOIN rowlock_job AS head ON head.rowid IN (
        SELECT due.rowid
        FROM rowlock_job AS due
        WHERE due.queue = :queue AND due.rank = :rank AND due.kind = lane.value
            AND {waiting due}
            AND due.run_at <= {now}
            AND (due.run_at, due.id) >= (floor_at.value, floor_id.value)
        ORDER BY due.run_at, due.id
        LIMIT :limit
    )
    ORDER BY head.run_at, head.id
    LIMIT :limit
)
RETURNING {row}, {now}

-- name: claim_tenants (postgres)
-- Lease the first due jobs of some tenants, of one queue and rank, in their common order.
-- Uses job_tenant_lane once per lane. Candidates are read without a lock, eight times as many as
-- requested, so that seven other claimers may hold the first ones.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
candidate AS MATERIALIZED (
    SELECT head.id, head.run_at
    FROM unnest(:tenants::text[], :kinds::text[]) AS lane (tenant, kind) CROSS JOIN LATERAL (
        SELECT job.id, job.run_at
        FROM rowlock.job AS job
        WHERE job.tenant = lane.tenant AND job.queue = :queue AND job.rank = :rank::smallint
            AND job.kind = lane.kind
            AND {waiting job}
            AND job.run_at <= (SELECT now FROM clock)
        ORDER BY job.run_at, job.id
        LIMIT :limit::bigint * 8
    ) AS head
    ORDER BY head.run_at, head.id
    LIMIT :limit::bigint * 8
),
{lease candidate}

-- name: claim_tenants (sqlite)
-- Lease the first due jobs of some tenants, of one queue and rank, in their common order.
-- Uses job_tenant_lane once per lane.
UPDATE rowlock_job
{leased job}
WHERE rowid IN (
    SELECT head.rowid
    FROM json_each(:kinds) AS lane JOIN json_each(:tenants) AS owner ON owner.key = lane.key
        CROSS JOIN rowlock_job AS head ON head.rowid IN (
        SELECT due.rowid
        FROM rowlock_job AS due
        WHERE due.tenant = owner.value AND due.queue = :queue AND due.rank = :rank
            AND due.kind = lane.value
            AND {waiting due}
            AND due.run_at <= {now}
        ORDER BY due.run_at, due.id
        LIMIT :limit
    )
    ORDER BY head.run_at, head.id
    LIMIT :limit
)
RETURNING {row}, {now}

-- name: promote
-- In queues ordered by age, move due retries back to the places of their age. Uses job_retried,
-- which holds only those that have not been moved yet.
UPDATE rowlock.job
SET run_at = created_at
WHERE id IN (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.queue = ANY (:queues::text[])
        AND {waiting job}
        AND {retried job}
        AND job.run_at <= (SELECT {now})
        AND job.run_at > job.created_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING 1

-- name: resolve (postgres)
-- Give jobs that were enqueued by name the policy of the worker that knows their kind. Fenced.
UPDATE rowlock.job AS job
SET policy = known.policy,
    max_attempts = coalesce(job.max_attempts, known.max_attempts)
FROM unnest(:id::uuid[], :token::bigint[], :policy::text[], :max_attempts::integer[])
    AS known (id, token, policy, max_attempts)
WHERE job.id = known.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = known.token
RETURNING job.id::text

-- name: resolve (sqlite)
-- Give jobs that were enqueued by name the policy of the worker that knows their kind. Fenced.
UPDATE rowlock_job
SET policy = :policy,
    max_attempts = coalesce(max_attempts, :max_attempts)
WHERE id = :id AND token = :token
RETURNING id

-- name: send_to_room (postgres)
-- Have jobs that were claimed from a lane wait at the limit of their kind, as if they had not been
-- claimed. Fenced by token. Uses job_pkey.
UPDATE rowlock.job AS job
SET limit_name = known.limit_name,
    limit_key = known.limit_key,
    place = CASE WHEN known.is_ordered THEN nextval('rowlock.turn_number') END,
    rank = CASE WHEN known.is_ordered THEN 0 ELSE job.rank END,
    held_by = 1,
    attempt = job.attempt - 1,
    lease_expires_at = NULL,
    indexed_lease = NULL,
    beat_at = NULL,
    worker = NULL,
    begun = false
FROM unnest(
    :id::uuid[], :token::bigint[], :limit_name::text[], :limit_key::text[], :is_ordered::boolean[]
) AS known (id, token, limit_name, limit_key, is_ordered)
WHERE job.id = known.id
    AND job.id = ANY(:id::uuid[])
    AND job.token = known.token
    AND job.lease_expires_at IS NOT NULL
RETURNING job.id::text

-- name: send_to_room (sqlite)
-- Have a job that was claimed from a lane wait at the limit of its kind, as if it had not been
-- claimed. Fenced by token. Uses the primary key.
UPDATE rowlock_job
SET limit_name = :limit_name,
    limit_key = :limit_key,
    place = CASE WHEN :is_ordered THEN max({now}, 1 + coalesce((
        SELECT max(job.place)
        FROM rowlock_job AS job
        WHERE job.limit_name = :limit_name AND job.limit_key = :limit_key
            AND job.place IS NOT NULL
    ), 0)) END,
    rank = CASE WHEN :is_ordered THEN 0 ELSE rank END,
    held_by = 1,
    attempt = attempt - 1,
    lease_expires_at = NULL,
    beat_at = NULL,
    worker = NULL,
    begun = 0
WHERE id = :id AND token = :token AND lease_expires_at IS NOT NULL
RETURNING id

-- fragment: leased (postgres)
-- What a claim writes into a job's row.
SET attempt = job.attempt + 1,
    token = job.token + 1,
    worker = :worker,
    started_at = clock.now,
    beat_at = clock.now,
    lease_expires_at = clock.now + :lease::bigint,
    lease_taken = false,
    begun = :begun::boolean

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
    WHERE job.lease_expires_at IS NULL
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
-- however many jobs wait in it. The last row holds the current time, whether leases have expired
-- (uses job_lease), and how many microseconds all this has taken.
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
            AND job.lease_expires_at IS NULL
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
    UNION ALL
    SELECT {tenant? head.tenant,} head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN LATERAL (
        SELECT {tenant? job.tenant,} job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE {tenant? job.tenant = lane.tenant AND} job.queue = lane.queue
            AND job.lease_expires_at IS NULL
            AND (job.rank, job.kind) > (lane.rank, lane.kind)
        ORDER BY job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, open_queue.by_age, lane.run_at, lane.id::text,
    {tenant? lane.tenant | NULL::text AS tenant}, NULL::bigint AS now, NULL::boolean AS is_late,
    NULL::bigint AS spent
FROM lane JOIN open_queue ON open_queue.queue = lane.queue
WHERE :kinds::text[] IS NULL OR lane.kind = ANY (:kinds::text[])
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock.now, :expired::boolean AND EXISTS (
    -- Sorted, so that job_lease is used even if the planner thinks that there are many leases.
    SELECT FROM (
        SELECT job.queue
        FROM rowlock.job AS job
        WHERE job.lease_expires_at <= (SELECT now FROM clock)
        ORDER BY job.lease_expires_at
        OFFSET 0
    ) AS late
    WHERE late.queue = ANY (:queues::text[])
),
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint
FROM clock

-- name: lanes (sqlite)
-- The lanes of these queues and the head of each, by a loose scan of job_lane: one probe per lane,
-- however many jobs wait in it. The last row holds the current time, whether leases have expired
-- (uses job_lease), and how many microseconds all this has taken, estimated as ten per lane.
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
            AND job.lease_expires_at IS NULL
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
                AND job.lease_expires_at IS NULL AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE {tenant? job.tenant = lane.tenant AND} job.queue = lane.queue
                AND job.lease_expires_at IS NULL AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, open_queue.by_age, lane.run_at, lane.id,
    {tenant? lane.tenant | NULL}, NULL, NULL, NULL
FROM lane JOIN open_queue ON open_queue.queue = lane.queue
WHERE :kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, :expired AND EXISTS (
    SELECT 1
    FROM rowlock_job AS job
    WHERE job.lease_expires_at <= {now}
        AND job.queue IN (SELECT value FROM json_each(:queues))
),
    10 * (SELECT count(*) FROM lane)

-- name: lanes_anywhere (postgres)
-- As lanes, for every queue: the same loose scan, over all of job_lane.
WITH RECURSIVE lane AS (
    (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE job.lease_expires_at IS NULL
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN LATERAL (
        SELECT job.queue, job.rank, job.kind, job.run_at, job.id
        FROM rowlock.job AS job
        WHERE job.lease_expires_at IS NULL
            AND (job.queue, job.rank, job.kind) > (lane.queue, lane.rank, lane.kind)
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    ) AS head
)
SELECT lane.queue, lane.rank, lane.kind, coalesce(queue.by_age, false), lane.run_at, lane.id::text,
    NULL::text AS tenant, NULL::bigint AS now, NULL::boolean AS is_late, NULL::bigint AS spent
FROM lane LEFT JOIN rowlock.queue AS queue ON queue.name = lane.queue
WHERE queue.is_paused IS NOT TRUE
    AND (:kinds::text[] IS NULL OR lane.kind = ANY (:kinds::text[]))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, false,
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint

-- name: lanes_anywhere (sqlite)
-- As lanes, for every queue: the same loose scan, over all of job_lane.
WITH RECURSIVE lane AS MATERIALIZED (
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM rowlock_job AS head
    WHERE head.id = (
        SELECT job.id
        FROM rowlock_job AS job
        WHERE job.lease_expires_at IS NULL
        ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT head.queue, head.rank, head.kind, head.run_at, head.id
    FROM lane CROSS JOIN rowlock_job AS head ON head.id = coalesce(
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NULL
                AND job.queue = lane.queue AND job.rank = lane.rank AND job.kind > lane.kind
            ORDER BY job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NULL
                AND job.queue = lane.queue AND job.rank > lane.rank
            ORDER BY job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM rowlock_job AS job
            WHERE job.lease_expires_at IS NULL AND job.queue > lane.queue
            ORDER BY job.queue, job.rank, job.kind, job.run_at, job.id
            LIMIT 1
        )
    )
)
SELECT lane.queue, lane.rank, lane.kind, coalesce(queue.by_age, 0), lane.run_at, lane.id,
    NULL, NULL, NULL, NULL
FROM lane LEFT JOIN rowlock_queue AS queue ON queue.name = lane.queue
WHERE coalesce(queue.is_paused, 0) = 0
    AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {now}, 0, 10 * (SELECT count(*) FROM lane)

-- name: claim (postgres)
-- Lease the first due jobs of one lane. Uses job_lane; takes locks one by one, skips locked rows.
-- Below the floor there was nothing at the claimer's last look, but maybe many dead entries.
-- By ctid, of locked rows: no join, whose plan might be one for an empty table.
-- The variant for a lane that a notification named, and nobody has looked at: nothing of a queue
-- that is paused or ordered by age (uses queue_pkey), or that has a job of a higher priority,
-- whether due or not: to read times would be to read all that are not due.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
picked AS MATERIALIZED (
    SELECT job.ctid
    FROM rowlock.job AS job
    WHERE job.queue = :queue AND job.rank = :rank::smallint AND job.kind = :kind
        AND job.lease_expires_at IS NULL
        AND job.run_at <= (SELECT now FROM clock)
        AND (job.run_at, job.id) >= (:floor_at::bigint, :floor_id::uuid)
        {hinted? AND NOT EXISTS (
            SELECT FROM rowlock.queue AS queue
            WHERE queue.name = :queue AND (queue.is_paused OR queue.by_age)
        )
        AND NOT EXISTS (
            SELECT FROM rowlock.job AS urgent
            WHERE urgent.queue = :queue AND urgent.rank < :rank::smallint
                AND urgent.lease_expires_at IS NULL
        )}
    ORDER BY job.run_at, job.id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE rowlock.job AS job
{leased job}
FROM clock
WHERE job.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked))
RETURNING {job}, clock.now

-- name: claim (sqlite)
-- Lease the first due jobs of one lane. Uses job_lane.
-- The variant for a lane that a notification named, and nobody has looked at: nothing of a queue
-- that is paused or ordered by age (uses its key), or that has a job of a higher priority,
-- whether due or not.
UPDATE rowlock_job
{leased job}
WHERE rowid IN (
    SELECT due.rowid
    FROM rowlock_job AS due
    WHERE due.queue = :queue AND due.rank = :rank AND due.kind = :kind
        AND due.lease_expires_at IS NULL
        AND due.run_at <= {now}
        AND (due.run_at, due.id) >= (:floor_at, :floor_id)
        {hinted? AND NOT EXISTS (
            SELECT 1 FROM rowlock_queue AS queue
            WHERE queue.name = :queue AND (queue.is_paused OR queue.by_age)
        )
        AND NOT EXISTS (
            SELECT 1 FROM rowlock_job AS urgent
            WHERE urgent.queue = :queue AND urgent.rank < :rank
                AND urgent.lease_expires_at IS NULL
        )}
    ORDER BY due.run_at, due.id
    LIMIT :limit
)
RETURNING {row}, {now}

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
            AND job.lease_expires_at IS NULL
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
            AND due.lease_expires_at IS NULL
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
            AND job.lease_expires_at IS NULL
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
            AND due.lease_expires_at IS NULL
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
        AND job.lease_expires_at IS NULL
        AND job.attempt > 0
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

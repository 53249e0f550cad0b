-- fragment: fits (postgres)
-- The conditions of a job filter.
(:kind::text IS NULL OR {of}.kind = :kind::text)
AND (:queue::text IS NULL OR {of}.queue = :queue::text)
AND (:tenant::text IS NULL OR {of}.tenant = :tenant::text)
AND (:key::text IS NULL OR {of}.key = :key::text)
AND (:tag::text IS NULL OR {of}.tags::jsonb ? :tag::text)
AND (
    :error::text IS NULL
    OR position(
        lower(:error::text COLLATE "C") IN lower({of}.errors COLLATE "C")
    ) > 0
)
AND (:since::bigint IS NULL OR {of}.created_at >= :since::bigint)
AND (:until::bigint IS NULL OR {of}.created_at < :until::bigint)

-- fragment: fits (sqlite)
(:kind IS NULL OR {of}.kind = :kind)
AND (:queue IS NULL OR {of}.queue = :queue)
AND (:tenant IS NULL OR {of}.tenant = :tenant)
AND (:key IS NULL OR {of}.key = :key)
AND (:tag IS NULL OR :tag IN (SELECT value FROM json_each({of}.tags)))
AND (:error IS NULL OR instr(lower({of}.errors), lower(:error)) > 0)
AND (:since IS NULL OR {of}.created_at >= :since)
AND (:until IS NULL OR {of}.created_at < :until)

-- fragment: in_state (postgres)
-- Whether a live job is in the requested state.
(
    :state::text IS NULL
    OR (:state::text = 'running') = ({of}.lease_expires_at IS NOT NULL)
    AND (
        {of}.lease_expires_at IS NOT NULL
        OR :state::text = CASE
            WHEN {of}.held_by = 3 THEN 'waiting'
            WHEN {of}.run_at <= clock.now THEN 'ready'
            WHEN {of}.attempt = 0 THEN 'scheduled'
            ELSE 'retrying'
        END
    )
)

-- fragment: in_state (sqlite)
(
    :state IS NULL
    OR (:state = 'running') = ({of}.lease_expires_at IS NOT NULL)
    AND (
        {of}.lease_expires_at IS NOT NULL
        OR :state = CASE
            WHEN {of}.held_by = 3 THEN 'waiting'
            WHEN {of}.run_at <= {now} THEN 'ready'
            WHEN {of}.attempt = 0 THEN 'scheduled'
            ELSE 'retrying'
        END
    )
)

-- name: get
-- Jobs by id, live or finished, optionally without the columns that can be large.
-- Uses job_pkey, finished_pkey.
SELECT {small? {held} | {job}}, {now}
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT {small? {ended} | {finished}}, {now}
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])

-- name: list_live (postgres)
-- A page of live jobs, newest id first, reading at most :scan rows. Uses job_pkey.
SELECT {full? {job} | {listed_job}}, clock.now
FROM (SELECT {now} AS now) AS clock, (
    SELECT *
    FROM rowlock.job
    WHERE id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY id DESC
    LIMIT :scan
) AS job
WHERE {in_state job}
    AND {fits job}
ORDER BY job.id DESC
LIMIT :limit

-- name: list_live (sqlite)
-- A page of live jobs, newest id first, reading at most :scan rows. Uses the primary key.
SELECT {full? {job} | {listed_job}}, {now}
FROM rowlock_job AS job
WHERE job.id < coalesce(:cursor, 'g')
    -- Not by an inner query with a LIMIT: SQLite would read all rows, to sort them.
    AND job.id >= coalesce(
        (
            SELECT floor.id
            FROM rowlock_job AS floor
            WHERE floor.id < coalesce(:cursor, 'g')
            ORDER BY floor.id DESC
            LIMIT 1 OFFSET :scan - 1
        ),
        ''
    )
    AND {in_state job}
    AND {fits job}
ORDER BY job.id DESC
LIMIT :limit

-- name: list_finished (postgres)
-- A page of finished jobs, newest id first, reading at most :scan rows. Uses finished_pkey.
SELECT {full? {finished} | {listed_finished}}, {now}
FROM (
    SELECT *
    FROM rowlock.finished
    WHERE id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY id DESC
    LIMIT :scan
) AS finished
WHERE (:state::text IS NULL OR finished.state = :state::text)
    AND {fits finished}
ORDER BY finished.id DESC
LIMIT :limit

-- name: list_finished (sqlite)
-- A page of finished jobs, newest id first, reading at most :scan rows. Uses the primary key.
SELECT {full? {finished} | {listed_finished}}, {now}
FROM rowlock_finished AS finished
WHERE finished.id < coalesce(:cursor, 'g')
    -- Not by an inner query with a LIMIT: SQLite would read all rows, to sort them.
    AND finished.id >= coalesce(
        (
            SELECT floor.id
            FROM rowlock_finished AS floor
            WHERE floor.id < coalesce(:cursor, 'g')
            ORDER BY floor.id DESC
            LIMIT 1 OFFSET :scan - 1
        ),
        ''
    )
    AND (:state IS NULL OR finished.state = :state)
    AND {fits finished}
ORDER BY finished.id DESC
LIMIT :limit

-- name: list_dead (postgres)
-- A page of dead jobs, newest failure first, reading at most :scan rows. Uses finished_dead.
SELECT {full? {finished} | {listed_finished}}, {now}
FROM (
    SELECT *
    FROM rowlock.finished
    WHERE state = 'dead'
        AND (finished_at, id) < (
            :cursor_finished::bigint,
            coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        )
    ORDER BY finished_at DESC, id DESC
    LIMIT :scan
) AS finished
WHERE {fits finished}
    AND (:fingerprint::text IS NULL OR finished.fingerprint = :fingerprint::text)
ORDER BY finished.finished_at DESC, finished.id DESC
LIMIT :limit

-- name: list_dead (sqlite)
-- A page of dead jobs, newest failure first, reading at most :scan rows. Uses finished_dead.
WITH floor AS MATERIALIZED (
    SELECT finished_at, id
    FROM rowlock_finished
    WHERE state = 'dead' AND (finished_at, id) < (:cursor_finished, coalesce(:cursor, 'g'))
    ORDER BY finished_at DESC, id DESC
    LIMIT 1 OFFSET :scan - 1
)
SELECT {full? {finished} | {listed_finished}}, {now}
FROM rowlock_finished AS finished
WHERE finished.state = 'dead'
    AND (finished.finished_at, finished.id) < (:cursor_finished, coalesce(:cursor, 'g'))
    -- The first condition is for the index, the second for jobs that died at the same time.
    AND finished.finished_at >= coalesce((SELECT floor.finished_at FROM floor), 0)
    AND coalesce(
        (finished.finished_at, finished.id) >= (SELECT floor.finished_at, floor.id FROM floor), 1
    )
    AND {fits finished}
    AND (:fingerprint IS NULL OR finished.fingerprint = :fingerprint)
ORDER BY finished.finished_at DESC, finished.id DESC
LIMIT :limit

-- name: floor (postgres)
-- Where a page of a table stopped reading; no row if it reached the end. Uses the primary keys.
-- Ordered by the column, with its qualified name: `id` alone would be the selected text, which has
-- no index, and the whole table would be sorted.
(
    SELECT 'job', job.id::text, NULL::bigint
    FROM rowlock.job AS job
    WHERE :live::boolean
        AND job.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY job.id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)
UNION ALL
(
    SELECT 'finished', finished.id::text, NULL::bigint
    FROM rowlock.finished AS finished
    WHERE :finished::boolean
        AND finished.id < coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY finished.id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)
UNION ALL
(
    SELECT 'dead', finished.id::text, finished.finished_at
    FROM rowlock.finished AS finished
    WHERE :dead::boolean
        AND finished.state = 'dead'
        AND (finished.finished_at, finished.id) < (
            :cursor_finished::bigint,
            coalesce(:cursor::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        )
    ORDER BY finished.finished_at DESC, finished.id DESC
    LIMIT 1 OFFSET :scan::bigint - 1
)

-- name: floor (sqlite)
-- Where a page of a table stopped reading; no row if it reached the end. Uses the primary keys.
SELECT *
FROM (
    SELECT 'job', id, NULL
    FROM rowlock_job
    WHERE :live AND id < coalesce(:cursor, 'g')
    ORDER BY id DESC
    LIMIT 1 OFFSET :scan - 1
)
UNION ALL
SELECT *
FROM (
    SELECT 'finished', id, NULL
    FROM rowlock_finished
    WHERE :finished AND id < coalesce(:cursor, 'g')
    ORDER BY id DESC
    LIMIT 1 OFFSET :scan - 1
)
UNION ALL
SELECT *
FROM (
    SELECT 'dead', id, finished_at
    FROM rowlock_finished
    WHERE :dead
        AND state = 'dead'
        AND (finished_at, id) < (:cursor_finished, coalesce(:cursor, 'g'))
    ORDER BY finished_at DESC, id DESC
    LIMIT 1 OFFSET :scan - 1
)

-- name: workers
-- Workers that announced themselves, or a page of them. Uses worker_pkey.
SELECT worker.id, worker.started_at, worker.beat_at, worker.pid, worker.host, worker.queues,
    worker.kinds, worker.vitals
FROM rowlock.worker AS worker
{page? WHERE worker.id > :after::text}
ORDER BY worker.id
{page? LIMIT :limit}

-- name: kinds (postgres)
-- A page of the kinds that workers announced, in the order of their code points, and how many
-- workers know each. Reads all workers, whose announcements are bounded.
SELECT announced.kind, count(*)
FROM rowlock.worker AS worker
CROSS JOIN LATERAL jsonb_array_elements_text(worker.kinds::jsonb) AS announced (kind)
WHERE announced.kind COLLATE "C" > :after::text
    AND (
        :own::text IS NULL
        OR left(worker.id, length(:bound::text)) <> :bound::text
        OR left(worker.id, length(:own::text)) = :own::text
    )
GROUP BY announced.kind
ORDER BY announced.kind COLLATE "C"
LIMIT :limit

-- name: kinds (sqlite)
-- A page of the kinds that workers announced, in the order of their code points, and how many
-- workers know each. Reads all workers, whose announcements are bounded.
SELECT announced.value, count(*)
FROM rowlock_worker AS worker JOIN json_each(worker.kinds) AS announced
WHERE announced.value > :after
    AND (
        :own IS NULL
        OR substr(worker.id, 1, length(:bound)) <> :bound
        OR substr(worker.id, 1, length(:own)) = :own
    )
GROUP BY announced.value
ORDER BY announced.value
LIMIT :limit

-- name: running
-- The running jobs and their workers, or those of a page. Walks job_lease and the claims.
SELECT job.worker, job.id::text, job.beat_at
FROM ({running job}) AS job
{page? WHERE job.worker > :after::text}
ORDER BY job.worker, job.id
LIMIT :limit

-- name: follow_ups (postgres)
-- Jobs that a job's success enqueued, among those with ids from its time. Uses job_pkey and
-- finished_pkey.
(
    SELECT {job}, {now}
    FROM (
        SELECT *
        FROM rowlock.job
        WHERE id > :low::uuid AND id < :high::uuid
        ORDER BY id
        LIMIT :scan
    ) AS job
    WHERE position(:mark::text IN job.meta) > 0
    LIMIT :limit
)
UNION ALL
(
    SELECT {finished}, {now}
    FROM (
        SELECT *
        FROM rowlock.finished
        WHERE id > :low::uuid AND id < :high::uuid
        ORDER BY id
        LIMIT :scan
    ) AS finished
    WHERE position(:mark::text IN finished.meta) > 0
    LIMIT :limit
)

-- name: follow_ups (sqlite)
-- Jobs that a job's success enqueued, among those with ids from its time. Uses the primary keys.
SELECT * FROM (
    SELECT {job}, {now}
    FROM (
        SELECT *
        FROM rowlock_job
        WHERE id > :low AND id < :high
        ORDER BY id
        LIMIT :scan
    ) AS job
    WHERE instr(job.meta, :mark) > 0
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT {finished}, {now}
    FROM (
        SELECT *
        FROM rowlock_finished
        WHERE id > :low AND id < :high
        ORDER BY id
        LIMIT :scan
    ) AS finished
    WHERE instr(finished.meta, :mark) > 0
    LIMIT :limit
)

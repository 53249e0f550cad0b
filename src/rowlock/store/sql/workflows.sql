-- name: add_workflow
-- A new workflow, unless its id is known or an open workflow has its key. Uses workflow_pkey and
-- workflow_key.
INSERT INTO rowlock.workflow (id, created_at, deadline, parent, name, key, tenant, meta)
VALUES (
    :id::uuid, {now}, {now} + :deadline::bigint, :parent::uuid, :name::text, :key::text,
    :tenant::text, :meta::text
)
ON CONFLICT DO NOTHING
RETURNING id::text

-- name: workflow_of_key
-- The open workflow that holds a key. Uses workflow_key.
SELECT workflow.id::text
FROM rowlock.workflow AS workflow
WHERE coalesce(workflow.tenant, '') = coalesce(:tenant::text, '')
    AND workflow.name = :name::text
    AND workflow.key = :key::text
    AND workflow.key IS NOT NULL
    AND workflow.ended_at IS NULL
FOR UPDATE OF workflow

-- name: lock_workflow
-- A workflow, locked. Uses workflow_pkey.
SELECT workflow.id::text, workflow.created_at, workflow.ended_at, workflow.deadline,
    workflow.cancelled_at, workflow.parent::text, workflow.name, workflow.key, workflow.tenant,
    workflow.meta, {now}
FROM rowlock.workflow AS workflow
WHERE workflow.id = ANY (:ids::uuid[])
ORDER BY workflow.id
FOR UPDATE OF workflow

-- name: workflows
-- Workflows by id. Uses workflow_pkey.
SELECT workflow.id::text, workflow.created_at, workflow.ended_at, workflow.deadline,
    workflow.cancelled_at, workflow.parent::text, workflow.name, workflow.key, workflow.tenant,
    workflow.meta, {now}
FROM rowlock.workflow AS workflow
WHERE workflow.id = ANY (:ids::uuid[])

-- name: list_workflows
-- A page of workflows, newest first, reading at most :scan rows. Uses workflow_pkey.
SELECT workflow.id::text, workflow.created_at, workflow.ended_at, workflow.deadline,
    workflow.cancelled_at, workflow.parent::text, workflow.name, workflow.key, workflow.tenant,
    workflow.meta, {now}
FROM rowlock.workflow AS workflow
WHERE workflow.id < :before::uuid
ORDER BY workflow.id DESC
LIMIT :scan::bigint

-- name: add_edges (postgres)
-- Have jobs wait for jobs. Uses edge_pkey.
INSERT INTO rowlock.edge (parent, child, wants)
SELECT edge.parent, edge.child, edge.wants
FROM unnest(:parent::uuid[], :child::uuid[], :wants::smallint[]) AS edge (parent, child, wants)
ON CONFLICT DO NOTHING
RETURNING parent::text, child::text, wants

-- name: add_edges (sqlite)
-- Have jobs wait for jobs. Uses the primary key.
INSERT INTO rowlock_edge (parent, child, wants)
VALUES (:parent, :child, :wants)
ON CONFLICT DO NOTHING
RETURNING parent, child, wants

-- name: add_stacks (postgres)
-- Stacks of nodes that are alike, and which waits for which. Uses stack_pkey.
INSERT INTO rowlock.stack (workflow, stack, parent, wants, kind)
SELECT stack.workflow, stack.stack, stack.parent, stack.wants, stack.kind
FROM unnest(
    :workflow::uuid[], :stack::bigint[], :parent::bigint[], :wants::smallint[], :kind::text[]
) AS stack (workflow, stack, parent, wants, kind)
ON CONFLICT DO NOTHING

-- name: add_stacks (sqlite)
-- Stacks of nodes that are alike, and which waits for which. Uses the primary key.
INSERT INTO rowlock_stack (workflow, stack, parent, wants, kind)
VALUES (:workflow, :stack, :parent, :wants, :kind)
ON CONFLICT DO NOTHING

-- name: watch (postgres)
-- Have live jobs belong to a workflow that waits for them, unless they belong to one, and see to it
-- that their ends are looked at closely. A lease that is noted in a claim is indexed from now on:
-- the settle of the others may remove the note. Uses job_pkey.
UPDATE rowlock.job AS job
SET workflow = coalesce(job.workflow, :workflow::uuid),
    stack = coalesce(job.stack, awaited.stack),
    watched = true,
    indexed_lease = job.lease_expires_at
FROM unnest(:id::uuid[], :stack::bigint[]) AS awaited (id, stack)
WHERE job.id = awaited.id AND job.id = ANY (:id::uuid[])

-- name: watch (sqlite)
-- Have a live job belong to a workflow that waits for it, unless it belongs to one, and see to it
-- that its end is looked at closely. Uses the primary key.
UPDATE rowlock_job
SET workflow = coalesce(workflow, :workflow), stack = coalesce(stack, :stack), watched = 1
WHERE id = :id

-- name: watch_ended (postgres)
-- As watch, for jobs that have ended and may be retried. Uses finished_pkey.
UPDATE rowlock.finished AS finished
SET workflow = coalesce(finished.workflow, :workflow::uuid),
    stack = coalesce(finished.stack, awaited.stack),
    watched = true
FROM unnest(:id::uuid[], :stack::bigint[]) AS awaited (id, stack)
WHERE finished.id = awaited.id AND finished.id = ANY (:id::uuid[])

-- name: watch_ended (sqlite)
-- As watch, for a job that has ended and may be retried. Uses the primary key.
UPDATE rowlock_finished
SET workflow = coalesce(workflow, :workflow), stack = coalesce(stack, :stack), watched = 1
WHERE id = :id

-- name: open_edges
-- Which jobs wait for these, and for what end, if they have not counted it. The variant `beyond`
-- leaves out those of one workflow. Uses edge_pkey, job_pkey and finished_pkey.
SELECT edge.parent::text, edge.child::text, edge.wants
FROM rowlock.edge AS edge
WHERE edge.parent = ANY (:ids::uuid[]) AND NOT edge.is_met
    {beyond? AND NOT EXISTS (
        SELECT 1
        FROM rowlock.job AS own
        WHERE own.id = edge.child AND own.workflow = :workflow::uuid
    ) AND NOT EXISTS (
        SELECT 1
        FROM rowlock.finished AS own
        WHERE own.id = edge.child AND own.workflow = :workflow::uuid
    )}

-- name: mark_edges (postgres)
-- The ends of jobs have counted for jobs that wait for them. Uses edge_pkey.
UPDATE rowlock.edge AS edge
SET is_met = true
FROM unnest(:parent::uuid[], :child::uuid[]) AS met (parent, child)
WHERE edge.parent = met.parent AND edge.child = met.child AND edge.parent = ANY (:parent::uuid[])

-- name: mark_edges (sqlite)
-- The ends of jobs have counted for jobs that wait for them. Uses the primary key.
UPDATE rowlock_edge SET is_met = 1 WHERE parent = :parent AND child = :child

-- name: count_down (postgres)
-- Jobs that wait for others have so many fewer to wait for; those at zero are released, if that is
-- wanted. Locked in the order of their ids. Uses job_pkey.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
),
locked AS MATERIALIZED (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.id = ANY (:id::uuid[]) AND {is_waiting job}
    ORDER BY job.id
    FOR UPDATE OF job
)
UPDATE rowlock.job AS job
SET pending = job.pending - met.number,
    held_by = CASE
        WHEN job.pending > met.number OR NOT :releases::boolean THEN 3 ELSE {held_at job}
    END,
    run_at = CASE
        WHEN job.pending > met.number OR NOT :releases::boolean THEN job.run_at
        ELSE {due_at job}
    END,
    place = CASE
        WHEN job.pending > met.number OR NOT :releases::boolean THEN NULL ELSE {place_of job}
    END
FROM unnest(:id::uuid[], :number::integer[]) AS met (id, number), clock
WHERE job.id = met.id AND {is_waiting job}
    AND job.id = ANY (ARRAY(SELECT locked.id FROM locked))
RETURNING job.id::text, job.queue, job.pending

-- name: count_down (sqlite)
-- A job that waits for others has so many fewer to wait for; at zero it is released, if that is
-- wanted. Uses the primary key.
UPDATE rowlock_job AS job
SET pending = job.pending - :number,
    held_by = CASE WHEN job.pending > :number OR NOT :releases THEN 3 ELSE {held_at job} END,
    run_at = CASE
        WHEN job.pending > :number OR NOT :releases THEN job.run_at ELSE {due_at job}
    END,
    place = CASE WHEN job.pending > :number OR NOT :releases THEN NULL ELSE {place_of job} END
WHERE job.id = :id AND job.held_by = 3
RETURNING id, queue, pending

-- name: release_waiting (postgres)
-- Release jobs, whatever else they wait for. Locked in the order of their ids. Uses job_pkey.
WITH clock AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid, {now} AS now
),
locked AS MATERIALIZED (
    SELECT job.id
    FROM rowlock.job AS job
    WHERE job.id = ANY (:ids::uuid[]) AND {is_waiting job}
    ORDER BY job.id
    FOR UPDATE OF job
)
UPDATE rowlock.job AS job
SET pending = 0, held_by = {held_at job}, run_at = {due_at job}, place = {place_of job}
FROM clock
WHERE job.id = ANY (ARRAY(SELECT locked.id FROM locked)) AND {is_waiting job}
RETURNING job.id::text, job.queue

-- name: release_waiting (sqlite)
-- Release jobs, whatever else they wait for. Uses the primary key.
UPDATE rowlock_job AS job
SET pending = 0, held_by = {held_at job}, run_at = {due_at job}, place = {place_of job}
WHERE job.id IN (SELECT value FROM json_each(:ids)) AND job.held_by = 3
RETURNING id, queue

-- name: descendants
-- The jobs that can't run if these do not, with the job that each waits for: all levels of those
-- that want a success. One of these that has ended before is not cancelled again: what waits for it
-- waits for its retry. Uses edge_pkey and job_pkey.
WITH RECURSIVE below AS (
    SELECT edge.child, edge.parent
    FROM rowlock.job AS first
        JOIN rowlock.edge AS edge ON edge.parent = first.id
        JOIN rowlock.job AS job ON job.id = edge.child
    WHERE first.id = ANY (:ids::uuid[]) AND first.held_by = 3
        AND edge.wants < 4 AND NOT edge.is_met AND job.held_by = 3
    UNION
    SELECT edge.child, edge.parent
    FROM below
        JOIN rowlock.edge AS edge ON edge.parent = below.child
        JOIN rowlock.job AS job ON job.id = edge.child
    WHERE edge.wants < 4 AND NOT edge.is_met AND job.held_by = 3
)
SELECT below.child::text, below.parent::text
FROM below

-- name: wait_again (postgres)
-- Have jobs that were retried wait for others. Uses job_pkey.
UPDATE rowlock.job AS job
SET pending = again.pending, held_by = 3, run_at = 0, place = NULL
FROM unnest(:id::uuid[], :pending::integer[]) AS again (id, pending)
WHERE job.id = again.id AND job.id = ANY (:id::uuid[])

-- name: wait_again (sqlite)
-- Have a job that was retried wait for others. Uses the primary key.
UPDATE rowlock_job SET pending = :pending, held_by = 3, run_at = 0, place = NULL WHERE id = :id

-- name: watch_again (postgres)
-- See to it that the ends of live jobs are looked at closely: jobs have begun to wait for them. A
-- lease that is noted in a claim is indexed from now on. Uses job_pkey.
UPDATE rowlock.job
SET watched = true, indexed_lease = lease_expires_at
WHERE id = ANY (:ids::uuid[])

-- name: watch_again (sqlite)
-- See to it that the ends of live jobs are looked at closely. Uses the primary key.
UPDATE rowlock_job SET watched = 1 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: edges_to
-- The jobs that these wait for. Uses edge_child.
SELECT edge.parent::text, edge.child::text, edge.wants, edge.is_met
FROM rowlock.edge AS edge
WHERE edge.child = ANY (:ids::uuid[])

-- name: reopen_workflows
-- Jobs of these workflows were retried. Uses workflow_pkey.
UPDATE rowlock.workflow
SET ended_at = NULL, cancelled_at = NULL
WHERE id = ANY (:ids::uuid[])

-- name: results
-- The results of the jobs that these waited for, or of some of them. Uses edge_child, edge_pkey and
-- finished_pkey.
SELECT edge.child::text, edge.parent::text, finished.state, finished.result
FROM rowlock.edge AS edge JOIN rowlock.finished AS finished ON finished.id = edge.parent
WHERE edge.child = ANY (:ids::uuid[]) {some? AND edge.parent = ANY (:parents::uuid[])}

-- name: result_sizes (postgres)
-- How many bytes the results have of the jobs that these waited for, or of some of them. Uses
-- edge_child, edge_pkey and finished_pkey.
SELECT edge.child::text, coalesce(sum(octet_length(finished.result)), 0)
FROM rowlock.edge AS edge JOIN rowlock.finished AS finished ON finished.id = edge.parent
WHERE edge.child = ANY (:ids::uuid[]) {some? AND edge.parent = ANY (:parents::uuid[])}
GROUP BY edge.child

-- name: result_sizes (sqlite)
-- How many bytes the results have of the jobs that these waited for, or of some of them. Uses
-- edge_child and the primary keys.
SELECT edge.child, coalesce(sum(length(CAST(finished.result AS blob))), 0)
FROM rowlock_edge AS edge JOIN rowlock_finished AS finished ON finished.id = edge.parent
WHERE edge.child IN (SELECT value FROM json_each(:ids))
    {some? AND edge.parent IN (SELECT value FROM json_each(:parents))}
GROUP BY edge.child

-- name: set_inputs (postgres)
-- Which results jobs get. Uses job_pkey.
UPDATE rowlock.job AS job
SET inputs = given.inputs
FROM unnest(:id::uuid[], :inputs::text[]) AS given (id, inputs)
WHERE job.id = given.id AND job.id = ANY (:id::uuid[])

-- name: set_inputs (sqlite)
-- Which results a job gets. Uses the primary key.
UPDATE rowlock_job SET inputs = :inputs WHERE id = :id

-- name: live_of_workflow
-- Whether a workflow has a live job. Uses job_workflow.
SELECT 1
FROM rowlock.job AS job
WHERE job.workflow = :workflow::uuid AND job.workflow IS NOT NULL
LIMIT 1

-- name: note_ended
-- None of a workflow's jobs is live. Uses workflow_pkey.
UPDATE rowlock.workflow
SET ended_at = {now}
WHERE id = :workflow::uuid AND ended_at IS NULL
RETURNING id::text

-- name: begin_workflow
-- A running job begins a workflow by adding jobs to it. Uses job_pkey.
UPDATE rowlock.job
SET workflow = :workflow::uuid, stack = :stack::bigint
WHERE id = :id::uuid AND workflow IS NULL

-- name: stacks_of
-- The stacks and kinds of jobs. Uses job_pkey.
SELECT job.id::text, job.stack, job.kind
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])

-- fragment: parts_of
-- The parts of a workflow's jobs that are counted apart: where live jobs are held, and how others
-- ended.
(
    SELECT 'lane' AS held, 0 AS held_by
    UNION ALL SELECT 'room', 1
    UNION ALL SELECT 'outside', 2
    UNION ALL SELECT 'waiting', 3
    UNION ALL SELECT 'succeeded', 0
    UNION ALL SELECT 'dead', 0
    UNION ALL SELECT 'cancelled', 0
) AS {of}

-- name: workflow_counts
-- How many jobs of workflows are in each state, up to a bound; of those that can run, also how many
-- run. Uses job_workflow and finished_workflow.
SELECT asked.id::text, part.held, (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM rowlock.job AS job
        WHERE job.workflow = asked.id AND job.held_by IS NULL AND part.held = 'lane'
        LIMIT :most::bigint
    ) AS few
) + (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM rowlock.job AS job
        WHERE job.workflow = asked.id AND job.held_by = part.held_by
        LIMIT :most::bigint
    ) AS few
) + (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM rowlock.finished AS finished
        WHERE finished.workflow = asked.id AND finished.state = part.held
        LIMIT :most::bigint
    ) AS few
), (
    SELECT count(*)
    FROM (
        SELECT job.lease_expires_at AS leased
        FROM rowlock.job AS job
        WHERE job.workflow = asked.id AND job.held_by IS NULL AND part.held = 'lane'
        LIMIT :most::bigint
    ) AS few
    WHERE few.leased IS NOT NULL
) + (
    SELECT count(*)
    FROM (
        SELECT job.lease_expires_at AS leased
        FROM rowlock.job AS job
        WHERE job.workflow = asked.id AND job.held_by = part.held_by AND part.held_by < 3
        LIMIT :most::bigint
    ) AS few
    WHERE few.leased IS NOT NULL
), (
    SELECT count(*)
    FROM (
        SELECT finished.cause AS cause
        FROM rowlock.finished AS finished
        WHERE finished.workflow = asked.id AND finished.state = part.held
            AND part.held = 'cancelled'
        LIMIT :most::bigint
    ) AS few
    WHERE few.cause = 2
)
FROM rowlock.workflow AS asked CROSS JOIN {parts_of part}
WHERE asked.id = ANY (:ids::uuid[])

-- name: stack_counts
-- As workflow_counts, for each stack of one workflow. Uses stack_pkey, job_workflow and
-- finished_workflow.
SELECT asked.stack, part.held, (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM rowlock.job AS job
        WHERE job.workflow = asked.workflow AND job.stack = asked.stack
            AND job.held_by IS NULL AND part.held = 'lane'
        LIMIT :most::bigint
    ) AS few
) + (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM rowlock.job AS job
        WHERE job.workflow = asked.workflow AND job.stack = asked.stack
            AND job.held_by = part.held_by
        LIMIT :most::bigint
    ) AS few
) + (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM rowlock.finished AS finished
        WHERE finished.workflow = asked.workflow AND finished.stack = asked.stack
            AND finished.state = part.held
        LIMIT :most::bigint
    ) AS few
), (
    SELECT count(*)
    FROM (
        SELECT job.lease_expires_at AS leased
        FROM rowlock.job AS job
        WHERE job.workflow = asked.workflow AND job.stack = asked.stack
            AND job.held_by IS NULL AND part.held = 'lane'
        LIMIT :most::bigint
    ) AS few
    WHERE few.leased IS NOT NULL
) + (
    SELECT count(*)
    FROM (
        SELECT job.lease_expires_at AS leased
        FROM rowlock.job AS job
        WHERE job.workflow = asked.workflow AND job.stack = asked.stack
            AND job.held_by = part.held_by AND part.held_by < 3
        LIMIT :most::bigint
    ) AS few
    WHERE few.leased IS NOT NULL
), 0
FROM rowlock.stack AS asked CROSS JOIN {parts_of part}
WHERE asked.workflow = :workflow::uuid AND asked.parent = 0

-- name: stacks
-- The stacks of a workflow, and which waits for which. Uses stack_pkey.
SELECT stack.stack, stack.parent, stack.wants, stack.kind
FROM rowlock.stack AS stack
WHERE stack.workflow = :workflow::uuid
ORDER BY stack.stack, stack.parent
LIMIT :limit::bigint

-- name: live_nodes
-- A page of the live jobs of a workflow that are held in one way. Uses job_workflow: with the whole
-- order, since IS NULL alone does not tell PostgreSQL that one part of the index is in order.
SELECT {listed_job}, {now}
FROM rowlock.job AS job
WHERE job.workflow = :workflow::uuid
    AND {held? job.held_by = :held::smallint | job.held_by IS NULL}
    AND (job.stack, job.id) > (:after_stack::bigint, :after_id::uuid)
    AND job.stack <= :last_stack::bigint
ORDER BY job.workflow, job.held_by, job.stack, job.id
LIMIT :limit::bigint

-- name: ended_nodes
-- A page of the ended jobs of a workflow that are in one state. Uses finished_workflow.
SELECT {listed_finished}, {now}
FROM rowlock.finished AS finished
WHERE finished.workflow = :workflow::uuid
    AND finished.state = :state::text
    AND (finished.stack, finished.id) > (:after_stack::bigint, :after_id::uuid)
    AND finished.stack <= :last_stack::bigint
ORDER BY finished.stack, finished.id
LIMIT :limit::bigint

-- name: nodes_to_cancel
-- Live jobs of a workflow whose cancellation was not requested: first those that wait for others,
-- then those that can run. Uses job_workflow.
SELECT job.id::text
FROM rowlock.job AS job
WHERE job.workflow = :workflow::uuid
    AND {waiting? job.held_by = 3 | (job.held_by IS NULL OR job.held_by < 3)}
    AND NOT job.cancel_requested
LIMIT :limit::bigint

-- name: uncancelled
-- Those of some workflows that have a live job whose cancellation was not requested. Uses
-- job_workflow.
SELECT asked.id::text
FROM rowlock.workflow AS asked
WHERE asked.id = ANY (:ids::uuid[]) AND EXISTS (
    SELECT 1
    FROM rowlock.job AS job
    WHERE job.workflow = asked.id AND NOT job.cancel_requested
)

-- name: nodes_to_retry
-- A page of the dead jobs of a workflow, or of those that were cancelled because of others. Uses
-- finished_workflow.
SELECT finished.id::text, finished.stack
FROM rowlock.finished AS finished
WHERE finished.workflow = :workflow::uuid
    AND finished.state = :state::text
    AND (finished.state = 'dead' OR finished.cause = 1)
    AND finished.finished_at <= :until::bigint
    AND (finished.stack, finished.id) > (:after_stack::bigint, :after_id::uuid)
ORDER BY finished.stack, finished.id
LIMIT :limit::bigint

-- name: note_cancelled
-- A workflow was cancelled: nothing is added to it any more. Uses workflow_pkey.
UPDATE rowlock.workflow
SET cancelled_at = coalesce(cancelled_at, {now}), deadline = NULL
WHERE id = :workflow::uuid

-- name: open_workflows
-- Open workflows after this one: whether they have a live job, and whether they must be cancelled:
-- their deadline has passed, or their cancellation was cut short. Uses workflow_open and
-- job_workflow.
SELECT workflow.id::text, EXISTS (
    SELECT 1 FROM rowlock.job AS job WHERE job.workflow = workflow.id
), coalesce(workflow.deadline <= (SELECT {now}), false) OR (
    workflow.cancelled_at IS NOT NULL AND EXISTS (
        SELECT 1
        FROM rowlock.job AS job
        WHERE job.workflow = workflow.id AND NOT job.cancel_requested
    )
)
FROM rowlock.workflow AS workflow
WHERE workflow.ended_at IS NULL AND workflow.id > :after::uuid
ORDER BY workflow.id
LIMIT :limit::bigint

-- name: keep_nodes
-- From now on, ended jobs of a workflow are kept for their time. Uses finished_workflow.
UPDATE rowlock.finished
SET expires_at = expires_at - 253000000000000000 + {now}
WHERE id IN (
    SELECT finished.id
    FROM rowlock.finished AS finished
    WHERE finished.workflow = :workflow::uuid AND finished.expires_at >= 253000000000000000
    LIMIT :limit::bigint
)
RETURNING id::text

-- name: drop_edges
-- Remove what is known of who waited for jobs that are removed. Uses edge_pkey and edge_child.
DELETE FROM rowlock.edge
WHERE parent = ANY (:ids::uuid[]) OR child = ANY (:ids::uuid[])

-- name: drop_workflows
-- Remove workflows that ended long ago, and of which no job is left. Uses workflow_ended,
-- job_workflow and finished_workflow.
DELETE FROM rowlock.workflow
WHERE id IN (
    SELECT workflow.id
    FROM rowlock.workflow AS workflow
    WHERE workflow.ended_at <= (SELECT {now}) - :workflows_kept::bigint
        AND NOT EXISTS (SELECT 1 FROM rowlock.finished AS job WHERE job.workflow = workflow.id)
        AND NOT EXISTS (SELECT 1 FROM rowlock.job AS job WHERE job.workflow = workflow.id)
    ORDER BY workflow.ended_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING id::text

-- name: drop_stacks
-- Remove the shapes of workflows that are removed. Uses stack_pkey.
DELETE FROM rowlock.stack
WHERE workflow = ANY (:ids::uuid[])

-- name: key_of_others
-- Open workflows that hold the keys of these, which have ended. Uses workflow_key.
SELECT mine.id::text, other.id::text
FROM rowlock.workflow AS mine JOIN rowlock.workflow AS other
    ON coalesce(other.tenant, '') = coalesce(mine.tenant, '')
    AND other.name = mine.name AND other.key = mine.key
WHERE mine.id = ANY (:ids::uuid[])
    AND mine.key IS NOT NULL AND mine.ended_at IS NOT NULL
    AND other.key IS NOT NULL AND other.ended_at IS NULL

-- name: waiting_children
-- Jobs that wait for these. Uses edge_pkey and job_pkey.
SELECT edge.parent::text, edge.child::text
FROM rowlock.edge AS edge JOIN rowlock.job AS job ON job.id = edge.child
WHERE edge.parent = ANY (:ids::uuid[]) AND NOT edge.is_met AND job.held_by = 3

-- name: parents_of
-- How many jobs another waits for, up to :most, and for what end. Uses edge_child.
SELECT count(*), coalesce(max(few.wants), 1)
FROM (
    SELECT edge.wants
    FROM rowlock.edge AS edge
    WHERE edge.child = :id::uuid
    LIMIT :most::bigint
) AS few

-- name: neighbours
-- The jobs that a job waits for, and those that wait for it, :most of each. Uses edge_child and
-- edge_pkey.
SELECT above.id, 1
FROM (
    SELECT edge.parent::text AS id
    FROM rowlock.edge AS edge
    WHERE edge.child = :id::uuid
    LIMIT :most::bigint
) AS above
UNION ALL
SELECT below.id, 0
FROM (
    SELECT edge.child::text AS id
    FROM rowlock.edge AS edge
    WHERE edge.parent = :id::uuid
    LIMIT :most::bigint
) AS below

-- name: listed
-- Jobs by id, live or finished, as in a list. Uses job_pkey, finished_pkey.
SELECT {listed_job}, {now}
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT {listed_finished}, {now}
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])

-- name: stuck_parents
-- Ended jobs that keep others waiting, which want their success: dead ones, and cancelled ones if
-- those that wait were retried. Uses edge_child and finished_pkey.
SELECT finished.id::text, finished.kind, finished.state
FROM rowlock.edge AS edge JOIN rowlock.finished AS finished ON finished.id = edge.parent
WHERE edge.child = ANY (:ids::uuid[]) AND NOT edge.is_met AND edge.wants < 4
    AND finished.state <> 'succeeded'
LIMIT :limit::bigint

-- name: live_parents
-- Live jobs that others wait for: those that wait themselves, or those that don't. Uses edge_child
-- and job_pkey.
SELECT {listed_job}, {now}
FROM rowlock.edge AS edge JOIN rowlock.job AS job ON job.id = edge.parent
WHERE edge.child = ANY (:ids::uuid[]) AND NOT edge.is_met AND edge.wants <= :wants::smallint
    AND {waiting? job.held_by = 3 | (job.held_by IS NULL OR job.held_by < 3)}
LIMIT :limit::bigint

-- name: open_states
-- What the state of open workflows comes from: whether they have jobs that run or can run, that
-- wait for others, that are dead, and that were cancelled though needed (among the first :most).
-- Uses workflow_open, job_workflow and finished_workflow.
SELECT workflow.id::text, workflow.name, workflow.tenant, EXISTS (
    SELECT 1 FROM rowlock.job AS job
    WHERE job.workflow = workflow.id AND job.workflow IS NOT NULL AND job.held_by IS NULL
) OR EXISTS (
    SELECT 1 FROM rowlock.job AS job
    WHERE job.workflow = workflow.id AND job.workflow IS NOT NULL AND job.held_by < 3
), EXISTS (
    SELECT 1 FROM rowlock.job AS job
    WHERE job.workflow = workflow.id AND job.workflow IS NOT NULL AND job.held_by = 3
), EXISTS (
    SELECT 1 FROM rowlock.finished AS finished
    WHERE finished.workflow = workflow.id AND finished.workflow IS NOT NULL
        AND finished.state = 'dead'
), EXISTS (
    SELECT 1
    FROM (
        SELECT finished.cause AS cause
        FROM rowlock.finished AS finished
        WHERE finished.workflow = workflow.id AND finished.workflow IS NOT NULL
            AND finished.state = 'cancelled'
        LIMIT :most::bigint
    ) AS few
    WHERE coalesce(few.cause, 0) <> 2
), {now}
FROM rowlock.workflow AS workflow
WHERE workflow.ended_at IS NULL
ORDER BY workflow.id
LIMIT :limit::bigint

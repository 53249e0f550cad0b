"""Every bound, named, with the reason for its value. No I/O, no environment.

A string below a constant is its row in the reference of limits. Each row stands on its own.
"""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
DAY_SECONDS: Final = 86_400.0

# Names: long enough for a URL or a dotted path, short enough for an index entry and a NOTIFY.
NAME_CHARACTERS_MAX: Final = 200
"""Longest name of a queue, kind, tenant, key, tag or worker, in characters."""
PRIORITY_MIN: Final = -100
"""Lowest priority. Jobs with it run last."""
PRIORITY_MAX: Final = 100
"""Highest priority. Jobs with it run first."""

# Every claim reads payloads. Larger data belongs in a file or a table of its own.
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""Largest encoded payload or result."""
# Deep enough for real data, far below where any JSON parser of any language recurses to death.
PAYLOAD_DEPTH_MAX: Final = 64
"""Deepest nesting of a payload, in levels."""
# The longest that CPython converts by default. Beyond it, int() itself refuses.
INTEGER_DIGITS_MAX: Final = 4_300
"""Longest integer in a payload, in digits."""
# Every bad field is named, but a list of a million NULs must not make a message of a gigabyte.
FIELD_ERRORS_MAX: Final = 1_000
"""Most invalid fields that one `PayloadInvalid` names."""
# Meta and tags are context, not content.
META_BYTES_MAX: Final = 16 * 1024
"""Largest `meta` of a job. The same limit applies to all its tags together."""
TAGS_MAX: Final = 20
"""Most tags per job."""

ERROR_BYTES_MAX: Final = 64 * 1024
"""Largest stored error. A longer one loses its middle."""
ERRORS_KEPT: Final = 20
"""Most errors kept per job. The oldest are dropped first."""
# Counted from the innermost frame of each exception in a chain. Formatting the traceback of an
# endless recursion would take too long.
ERROR_FRAMES_MAX: Final = 100
"""Most frames of a stored traceback. The innermost are kept."""
LOG_LINES_MAX: Final = 1_000
"""Most log lines kept per job."""
LOG_LINE_BYTES_MAX: Final = 4 * 1024
"""Longest line of a job's log."""
PROGRESS_TEXT_BYTES_MAX: Final = 1024
"""Longest text of a progress report."""
# The worker logs the beginning of an error's first line. The job keeps the whole error.
LOGGED_ERROR_CHARACTERS_MAX: Final = 200
"""Longest error text in a worker's log line, in characters."""
PAYLOAD_PREVIEW_CHARACTERS: Final = 200
"""Length of the beginning of a payload that lists of jobs show, in characters."""
# Log collectors cut or drop longer lines, so no library may write one through us.
LOGGED_CHARACTERS_MAX: Final = 16 * 1024
"""Longest message or traceback in a worker's log, in characters."""
LOGGED_NAMES_MAX: Final = 20
"""Most names that one log record of a worker lists: tasks, queues or kinds."""

MAX_ATTEMPTS_DEFAULT: Final = 20
"""Attempts per job, by default."""
MAX_ATTEMPTS_LIMIT: Final = 1_000_000
"""Highest `max_attempts` that a job may have."""
# During a rolling deployment, workers of both versions may run for some minutes. After that,
# another attempt can't help.
MISFIT_RETRY_SECONDS: Final = (60, 240, 600)
"""Delays before a job whose payload does not fit its task's parameters is retried, then dead."""
MAX_CRASHES_DEFAULT: Final = 3
"""Crashes of its process while running in isolation, after which a job is dead, by default."""
# Before such a run, it is recorded that it has begun.
SUSPECT_LOSSES: Final = 2
"""Leases lost in a row after which a job is retried in isolation."""
INTERRUPTIONS_MAX: Final = 20
"""Interrupted runs that aren't counted as attempts, after which a job is dead."""
NOT_BEGUN_SECONDS: Final = 1
"""Delay before a job is retried that was given back because its run could not begin."""
SUSPECT_WAIT_SECONDS: Final = 2.0
"""Average delay of a job to be run in isolation while this machine runs another such job."""
SLOT_RETRY_SECONDS: Final = 5.0
"""Delay before a job is retried whose process slot could not be started."""
KEEP_SECONDS_DEFAULT: Final = DAY_SECONDS
"""Retention of succeeded and cancelled jobs, by default: one day."""
KEEP_DEAD_SECONDS_DEFAULT: Final = 30 * DAY_SECONDS
"""Retention of dead jobs, by default: 30 days."""
# A longer duration is a mistake in units, and must not overflow microseconds in 64 bits.
DURATION_SECONDS_MAX: Final = 100 * 365 * DAY_SECONDS
"""Longest duration of any option: a hundred years."""
# A client that lost the response to an enqueue sends it again within minutes, or never.
ID_REMEMBERED_SECONDS: Final = 15 * 60.0
"""Shortest time that the id of a finished job is remembered."""
# A `Release` without a delay must not spin.
RELEASE_SECONDS_DEFAULT: Final = 1.0
"""Delay of a `Release` that names none."""

LEASE_SECONDS_DEFAULT: Final = 30.0
"""Length of a lease, by default."""
CLAIM_LIMIT_MAX: Final = 10_000
"""Most jobs per claim."""
CLAIM_NOTED_MIN: Final = 8
"""Fewest jobs that PostgreSQL notes as one claim. The leases of fewer jobs are indexed at once."""
KEYS_VISITED_MAX: Final = 200
"""Most keys of a limit that one claim looks at. Each costs the database about 20 µs."""
KEYS_VISITED_MIN: Final = 8
"""Fewest keys of a limit that one claim looks at, if there are as many."""
KEYS_REMEMBERED_MAX: Final = 10_000
"""Most keys of limits of which a process remembers what has ended, so as not to read it again."""
# A key that takes longer to visit has left many jobs behind that can't be cleaned away yet.
KEY_SLOW_US: Final = 60
# If more of its starts are alive, only the oldest is remembered.
TURNS_REMEMBERED_MAX: Final = 20
# How often a claim asks keys that give nothing: the first of their jobs in order is not due.
TAKES_IN_VAIN_MAX: Final = 10
LIMIT_MAX: Final = 1_000_000
"""Largest concurrency, and largest burst, of a limit."""
LIMIT_WEIGHT_MAX: Final = 1_000
"""Largest weight of a key of a limit."""
LIMIT_WEIGHTS_MAX: Final = 1_000
"""Most keys with a weight in one declaration of a limit. Every claim there reads them."""
RATE_INTERVAL_SECONDS_MAX: Final = 366 * 86_400
"""Longest time between two starts that a rate may ask for."""
REASON_BYTES_MAX: Final = 1_000
"""Most bytes of the reason of a pause or a throttle."""
ROOMS_REMEMBERED_MAX: Final = 1_000
"""Most groups of jobs waiting at limits for which a process remembers whose turn is next."""
ENQUEUE_MANY_MAX: Final = 10_000_000
"""Most jobs per `enqueue_many`."""
# One statement's rows: large enough to be fast, small enough to hold no lock for long.
BATCH_ROWS: Final = 1_000
"""Most rows per INSERT statement."""
# The payloads of one statement are encoded for it, and decoded for its answer, without a pause.
BATCH_BYTES: Final = 1024 * 1024
"""Most bytes of payloads per INSERT statement with more than one job."""
# PostgreSQL's COPY is used for at least this many jobs, and for at most this many at a time.
COPY_ROWS_MIN: Final = 200
COPY_ROWS_MAX: Final = 10_000
MAINTENANCE_BATCH_ROWS: Final = 500
"""Rows per transaction of recovery, retention and bulk retries."""
BULK_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of payloads and results in one step of a bulk cancel or retry."""
MOVE_BATCH_ROWS: Final = 200
"""Most jobs that `rowlock move` holds in memory."""
MOVE_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of payloads and results that `rowlock move` holds, estimated from recent jobs."""
MOVE_STATEMENT_BYTES: Final = 4 * 2**20
"""Most bytes of jobs, as JSON, that one statement of `rowlock move` inserts."""
MOVE_LOOK_SECONDS: Final = 0.5
"""Interval at which `rowlock move` checks for jobs that are still running."""
MOVE_PATIENCE_SECONDS: Final = 60.0
"""Time that `rowlock move` waits for a database that is unavailable, before it gives up."""
LIST_LIMIT_DEFAULT: Final = 100
"""Jobs per page, by default."""
LIST_LIMIT_MAX: Final = 1_000
"""Most jobs per page."""
# A page never reads more rows than this, however rare a match is. It returns a cursor instead.
# With 50,000, a page without a match took 110 ms among a million waiting jobs.
PAGE_SCAN_ROWS_MAX: Final = 20_000
"""Most rows read for one page of jobs, before it returns a cursor for the next page."""
LIST_SCAN_ROWS_MAX: Final = 50_000
"""Most rows read for a count or a list of groups. The result says if there are more."""
COUNT_EXACT_MAX: Final = 10_000
"""Counts are exact up to this number."""
LIMITS_ANNOUNCED_MAX: Final = 100
"""Most limits whose numbers a worker announces."""
LIMITS_LISTED_MAX: Final = 1_000
"""Most limits per page of them."""
# Of each of them, jobs are counted up to a bound of their own: a look reads a million rows at most.
KEYS_LISTED_MAX: Final = 1_000
"""Most keys of a limit that one look at them visits."""
KEY_COUNT_EXACT_MAX: Final = 1_000
"""Numbers of jobs of a key are exact up to this."""
KEY_ROOMS_MAX: Final = 50
"""Most pairs of a queue and a kind in which a look at the keys of a limit finds waiting jobs."""

# Workflows.
WORKFLOW_JOBS_MAX: Final = 100_000
"""Most jobs of one workflow that are enqueued, or added by one job, at a time."""
WORKFLOW_EDGES_MAX: Final = 1_000_000
"""Most pairs of jobs of which one waits for the other, that are enqueued or added at a time."""
WORKFLOW_PARENTS_MAX: Final = 10_000
"""Most jobs that one job of a workflow waits for."""
WORKFLOW_LIST_COUNT_MAX: Final = 1_000
"""Numbers of jobs in a list of workflows are exact up to this."""
WORKFLOW_OPEN_EXACT_MAX: Final = 1_000
"""Numbers of open workflows in metrics, and those that `rowlock doctor` looks at, stop at this."""
WORKFLOW_SWEEP_SECONDS: Final = 2.5
"""Interval at which a worker notes which workflows have ended, and looks for passed deadlines."""
WORKFLOW_STACKS_MAX: Final = 200
"""Most groups of like jobs that the picture of a workflow has."""
RELATED_JOBS_MAX: Final = 20
"""Most jobs that are listed as those that a job waits for, and as those that wait for it."""
INPUTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most bytes of results of other jobs that one job gets."""

# Schedules. A tick found within this time was late, not missed: after a restart, a clock that was
# set forward by a minute or two, or a scheduler that was asleep when the schedule was written.
SCHEDULE_LATE_SECONDS: Final = 300.0
"""A tick of a schedule is late, not missed, if it is found within this time."""
SCHEDULE_MISSED_MAX: Final = 100
"""Most ticks that `missed="all"` makes up for. The latest are kept."""
SCHEDULE_BATCH_ROWS: Final = 50
"""Most schedules fired per transaction."""
# Without a bell, this is when a scheduler sees the schedules that others wrote.
SCHEDULER_SLEEP_SECONDS_MAX: Final = 30.0
"""Longest time between two checks of a scheduler for due schedules."""
# In SQLite every write rings the bell.
SCHEDULER_REST_SECONDS: Final = 1.0
"""Shortest time between two checks of a scheduler that is notified of writes."""
# An expired lease is given back once two looks in a row have found it expired, so within twice
# this time. A look that comes long after the previous one counts as the first, but only a few
# times: a look itself may take seconds where many write to a slow disk. Retention can wait longer.
SWEEP_SECONDS: Final = 2.5
"""Approximate interval between two checks for expired leases. Two in a row must find the lease."""
SWEEP_STALE_SECONDS: Final = 4.0
"""A check this long after the previous one counts as the first: the database was unavailable."""
SWEEP_LOOKS_MAX: Final = 4
"""Checks in a row after which an expired lease is taken, however late they came."""
# A worker extends its leases when two thirds are left. So a smaller step expires no lease of two
# seconds or more. Between two looks, slewing corrects a clock by far less than this.
CLOCK_STEP_SECONDS: Final = 1.0
"""If the database's clock jumps forward by more than this, expired leases get an extra wait."""
# A heartbeat is sent every third of a lease, and takes a moment to arrive.
CLOCK_STEP_SLACK_SECONDS: Final = 2.0
"""Extra wait of expired leases after a clock jump, beside a third of their length."""
# If the database refuses to end a lease, that lease is skipped for this long, so that it does not
# hold up others.
SWEEP_REFUSED_SECONDS: Final = 60.0
# Enough halvings to find a few refused rows among 500.
SWEEP_REFUSALS_MAX: Final = 50
# Enough halvings to find one refused row among 500. A claim can't take longer: workers wait for it.
CLAIM_REFUSALS_MAX: Final = 10
# Every batch may lock each of these rows in vain.
SET_ASIDE_MAX: Final = 1_000
PRUNE_SECONDS: Final = 60.0
"""Approximate interval between two rounds of retention."""

# SQLite. Far longer than any batch takes.
SQLITE_BUSY_SECONDS: Final = 30.0
"""Longest time that a writer waits for SQLite's write lock."""
# A writer pauses for about this long before it asks for the lock again: a few transactions' time.
SQLITE_LOCK_PAUSE_SECONDS: Final = 0.0005
# The write-ahead log is checkpointed when it has grown by this many pages: fewer than the 1,000 at
# which connections of other libraries and users would do it themselves.
SQLITE_WAL_FRAMES: Final = 750
# A thread for async callers that was idle for the time below checkpoints it sooner, at this many
# pages: no one waits for it then.
SQLITE_IDLE_WAL_FRAMES: Final = 400
SQLITE_IDLE_SECONDS: Final = 0.01
# The log file is kept and overwritten. Only the part beyond this is cut off. Twice the above.
SQLITE_WAL_BYTES_KEPT: Final = 6 * 1024 * 1024
# A reader may hold up a checkpoint for this long.
SQLITE_CHECKPOINT_BUSY_MILLISECONDS: Final = 50
# A fork waits this long for the transactions of other threads.
SQLITE_FORK_WAIT_SECONDS: Final = 5.0
# At most this many requests of async callers share one transaction.
SQLITE_GROUP_MAX: Final = 256

# PostgreSQL.
POSTGRES_POOL_MAX: Final = 10
"""Most connections to PostgreSQL for the threads of a process, and for each event loop."""
POSTGRES_POOL_WAIT_SECONDS: Final = 30.0
"""Longest time that a call waits for a free PostgreSQL connection."""
# Heartbeats, claims and settlements need the other connections.
POSTGRES_BLOCKS_MAX: Final = 8
"""Most PostgreSQL connections that `ctx.transaction()` uses at once, per process."""
POSTGRES_CONNECT_SECONDS: Final = 10
"""Time allowed to connect to PostgreSQL."""
# A server that does not answer a statement within this time is considered dead. It is longer than
# any statement of ours takes, and than keepalives need to notice a dead machine.
POSTGRES_CALL_SECONDS: Final = 30.0
# A migration waits this long for the lock on a table, and every user of that table waits behind it.
# Then it pauses to let them through, and tries again, up to this many times.
MIGRATION_LOCK_SECONDS: Final = 1.0
MIGRATION_PAUSE_SECONDS: Final = 2.0
MIGRATION_TRIES_MAX: Final = 100
STORE_TRIES_MAX: Final = 5
"""Most tries of a transaction that lost its connection, a deadlock or a serialization race."""
STORE_RETRY_SECONDS: Final = 0.02
# A process rings the bell of a queue at most once in this time.
BELL_SECONDS: Final = 0.005
# A process remembers of this many queues when it has rung for them. With more, it rings more often.
BELL_QUEUES_MAX: Final = 1_000
BELL_QUEUE_BYTES_MAX: Final = 200
BELL_LANE_BYTES_MAX: Final = 500
# A listener notifies itself at this interval, and must hear it within the time below. A connection
# may be half dead, and behind a pooler LISTEN succeeds and stays silent.
BELL_PING_SECONDS: Final = 30.0
BELL_ANSWER_SECONDS: Final = 5.0

PROGRESS_SECONDS: Final = 0.5
"""Shortest time between two stored progress reports of a run."""
NOTES_LAST_SECONDS: Final = 5.0
"""Longest time that a run waits at its end to store its last progress and log lines."""
# Threads of a worker that write progress for coroutines and process slots. The event loop's own
# threads may all be busy with handlers.
NOTES_THREADS: Final = 2
# Each job is settled as soon as it has ended.
DRAIN_BATCH: Final = 20
"""Most jobs that `app.drain` leases at a time."""
WAIT_SECONDS: Final = 0.02
"""First polling interval of `app.wait`."""
WAIT_SECONDS_MAX: Final = 0.5
"""Longest polling interval of `app.wait`, which grows up to it."""

# The worker. A child process has room in shared memory for its slots and its buffer.
WORKER_CONCURRENCY_DEFAULT: Final = 20
"""Slots per child process of a worker, by default."""
WORKER_CONCURRENCY_MAX: Final = 1_000
"""Most slots per child process of a worker."""
WORKER_GRACE_SECONDS_DEFAULT: Final = 25.0
"""Time that running jobs get to finish after a worker received a signal, by default."""
WORKER_START_SECONDS_DEFAULT: Final = 60.0
"""Time that a starting worker waits for a migration, a role or its rights, by default."""
START_LOOK_SECONDS: Final = 1.0
"""Interval at which a worker that waits to start checks the database."""
LEASE_SECONDS_MIN: Final = 1.0
"""Shortest lease of a worker."""
ORPHANS_SECONDS_DEFAULT: Final = 300.0
"""Running jobs without a heartbeat for at least this long are orphans, by default."""
# The jobs leased ahead should last a child about this long, and are never more than the number
# below.
PREFETCH_SECONDS: Final = 0.1
"""Jobs are claimed ahead of free slots only from queues whose jobs take less than this."""
PREFETCH_MAX: Final = 500
"""Most jobs that a child process leases ahead of free slots."""
# 500 payloads of 16 KiB still fit.
PREFETCH_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of payloads that a child process leases ahead, estimated from recent jobs."""
# A child remembers the durations of at most this many queues. From the others it claims for free
# slots only.
PREFETCH_QUEUES_MAX: Final = 1000
# While jobs of several queues or priorities are mixed, fewer are claimed ahead, and looks are more
# frequent: the next job must not wait behind a large batch. With 500 claimed ahead, jobs of other
# queues waited 30 ms in a burst (p50). With 60 they wait 9 ms, but each job costs a tenth more.
MIXED_SECONDS: Final = 1.0
"""Work is mixed if jobs of several queues or priorities were seen within this time."""
PREFETCH_MIXED_MAX: Final = 60
"""Most jobs that a child process leases ahead while work is mixed."""
LOOK_MIXED_SECONDS: Final = 0.004
"""Shortest time between two checks for due jobs while work is mixed."""
# Jobs shorter than this are leased in batches, longer ones per free slot.
SHORT_JOB_SECONDS: Final = 0.02
# Jobs of a queue may suddenly take longer than before.
PREFETCH_STALE_SECONDS: Final = 1.0
"""A job that waits longer than this for a slot in its child process is given back."""
# Outcomes are written together, at the latest after this time.
SETTLE_SECONDS: Final = 0.003
SETTLE_BATCH: Final = 500
# A statement of this size takes well under a second, and a server's `statement_timeout` is seldom
# shorter.
SETTLE_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of results, payloads and follow-up jobs that a worker writes in one transaction."""
# A child whose unwritten outcomes exceed this number, or the bytes below, claims nothing.
SETTLE_BACKLOG_MAX: Final = 1_500
SETTLE_BACKLOG_BYTES: Final = 32 * 1024 * 1024
"""A child process with this many bytes of unwritten results and payloads claims nothing."""
# Fewer jobs than this are not claimed as a block, which would gain nothing.
CLAIM_BLOCK_MIN: Final = 4
# Bare successes of blocks are settled by their ids alone, so more of them fit into a statement.
SETTLE_BLOCK_ROWS: Final = 1_000
TURN_SECONDS: Final = 0.001
"""Runs that don't suspend follow one another for this long, before others on the loop continue."""
# A kind of which most runs suspend gains nothing from blocks. After this time it is tried again.
BLOCK_RETRY_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.01
"""Shortest time between two checks for due jobs while there is work."""
LOOK_SECONDS_MAX: Final = 2.0
"""Longest time between two checks for due jobs while there is work, however long a check takes."""
# Polling intervals without and with a bell.
POLL_SECONDS: Final = 0.5
POLL_SECONDS_WITH_BELL: Final = 1.0
CANCEL_GRACE_SECONDS: Final = 10.0
"""Time that a run gets to end after a cancel request, before its process is ended."""
# The bell may have rung for a cancel request. It is looked for at most this often.
CANCEL_LOOK_SECONDS: Final = 0.2
# A service that fails tries again after a pause that grows between these, with jitter.
TROUBLE_SECONDS: Final = 0.1
TROUBLE_SECONDS_MAX: Final = 10.0
# A failed heartbeat is sent again within this time: sooner than two sweeps take.
BEAT_RETRY_SECONDS_MAX: Final = 1.5
# `rowlock worker` looks at this interval for ready jobs that no live worker serves. Younger ones
# are left out: a worker for them may be about to start.
UNSERVED_LOOK_SECONDS: Final = 30.0
UNSERVED_SECONDS_MIN: Final = 5.0
# A worker announces itself at this interval. After WORKER_SILENT_SECONDS without an announcement
# it is considered dead, and after WORKER_FORGOTTEN_SECONDS it is forgotten.
ANNOUNCE_SECONDS: Final = 10.0
ANNOUNCE_CHANGED_SECONDS: Final = 2.0
"""Shortest time between two announcements of how many slots of a worker are taken."""
WORKER_SILENT_SECONDS: Final = 60.0
"""A worker without an announcement for this long is considered dead."""
WORKER_FORGOTTEN_SECONDS: Final = 600.0
# A child's event loop reports at this interval that it is running. Without a report for the time
# below it is stalled: the jobs it holds and has not begun are given back, after a pause in which
# both processes see what the other has written.
PULSE_SECONDS: Final = 0.25
STALL_SECONDS: Final = 2.0
"""If a handler blocks its event loop for this long, other jobs of that process are given back."""
REVOKE_SECONDS: Final = 0.1
# A child that exits before it ran anything is replaced after a pause between these.
RESPAWN_SECONDS: Final = 0.1
RESPAWN_SECONDS_MAX: Final = 30.0
# Outcomes of a dead child's jobs that are first tried in one transaction.
BURY_ROWS: Final = 100
# A dead child's leases are given back again after these times: a claim may still have been on its
# way.
GIVE_BACK_AGAIN_SECONDS: Final = (1.0, 3.0)
TIMEOUT_GRACE_SECONDS: Final = 2.0
"""Time that a run gets to end after its timeout, before its process is ended."""
# Interval at which we try again to interrupt a plain function that can't be interrupted just now,
# because it logs, imports, or is inside a call of ours.
INTERRUPT_SECONDS: Final = 0.01
CANCEL_SEEN_SECONDS: Final = 5.0
"""Extra time before `Cancel` is raised in a plain function that checks `ctx.cancel_requested`."""
# A child that must exit because one of its runs does not stop acknowledges that within this time.
# Otherwise its loop is blocked, so none of its other jobs can end either.
LEAVE_HEARD_SECONDS: Final = 5.0
"""A child process whose event loop is blocked by a run past its timeout is ended after this."""
# A child that is about to exit has a successor at once, but not a third one: its grace may outlast
# several.
CHILDREN_OF_PLACE_MAX: Final = 2
# The coreutils' `timeout` signals a process and then its group, and so do some terminals and
# service managers. A person takes longer to press Ctrl-C again.
SECOND_SIGNAL_SECONDS: Final = 1.0
"""A second signal ends a worker at once if it comes at least this long after the first."""
# Cancelled coroutines get this long to clean up when a worker ends.
STOP_SECONDS: Final = 2.0
# Process slots. A bug must not fill the memory, so messages have a limit, too.
SLOT_START_SECONDS: Final = 60.0
"""Time allowed for a process slot to import the app."""
SLOT_IDLE_SECONDS: Final = 60.0
"""A process slot without a job is ended after this long."""
SLOT_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest message between a worker and a process slot."""
# After a slot's death, its last messages are awaited for this long.
SLOT_LAST_WORDS_SECONDS: Final = 0.5
# With 10,000 files a look takes a tenth of a second.
RELOAD_SECONDS: Final = 1.0
"""Interval at which `--reload` checks for changed files."""
RELOAD_FILES_MAX: Final = 10_000
"""Most files that `--reload` checks."""

# The server. Decoding a megabyte takes at most some 20 ms, and that is what one call of a decoder
# may stop the event loop for.
HTTP_BODY_BYTES_MAX: Final = 1024 * 1024
"""Largest body of an HTTP request without jobs, heartbeats or settlements. Per request."""
# Room for one job with the largest payload, every character of it escaped.
HTTP_JOB_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest body with one job or with heartbeats, and largest item of a batch. Per request."""
HTTP_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest body of an HTTP request with a batch of jobs or with settlements. Per request."""
# A megabyte of empty lists takes twenty times its length when it is decoded, and 0.1 s.
HTTP_CONTAINERS_MAX: Final = 100_000
"""Most lists and objects in a payload, result or `meta` sent over HTTP. Per value."""
HTTP_LOG_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of log lines of one lease in a heartbeat over HTTP. Per lease."""
# Larger bodies and answers are decoded, checked and encoded in threads, this many at a time.
HTTP_INLINE_BYTES: Final = 64 * 1024
HTTP_THREADS: Final = 2
# What a server holds of all bodies, apart from the first 64 KiB of each. One token may hold half.
HTTP_BODIES_BYTES_MAX: Final = 160 * 1024 * 1024
"""Most bytes of large request bodies held at once, half of them of one token. Per server."""
HTTP_BODIES_WAIT_SECONDS: Final = 2.0
"""Longest time that a large body waits for room, before the answer is 503. Per request."""
HTTP_BODY_PAUSE_SECONDS: Final = 5.0
"""Longest pause while a large body arrives, before it is given up. Per request."""
HTTP_BATCH_MAX: Final = 10_000
"""Most jobs, leases or settlements in one HTTP request. Per request."""
# A transaction of 4 MiB of tracebacks stopped the event loop for 0.14 s.
HTTP_SETTLE_BYTES: Final = 1024 * 1024
"""Most bytes of settlements over HTTP in one transaction, or a single one. Per transaction."""
HTTP_FOLLOW_UPS_OF_JOB_MAX: Final = 100
"""Most follow-up jobs of one settlement over HTTP. Per settlement."""
# They are checked and written with their settlements, so together they are limited like a batch.
HTTP_FOLLOW_UPS_MAX: Final = 10_000
"""Most follow-up jobs of all settlements in one HTTP request. Per request."""
# Real clients send a tenth of this. A parser must not be fed endlessly.
HTTP_HEADER_BYTES_MAX: Final = 64 * 1024
"""Largest head (request line and headers) of an HTTP request. Per request."""
HTTP_HEADER_SECONDS: Final = 10.0
"""Time allowed for the head of an HTTP request to arrive. Per request."""
HTTP_BODY_SECONDS: Final = 30.0
"""Time allowed for the body of an HTTP request to arrive. Per request."""
# A client that still sends its body would not read the answer.
HTTP_DRAIN_BYTES_MAX: Final = 256 * 1024
"""Most bytes of the body of a refused HTTP request that are read and discarded. Per request."""
HTTP_DRAIN_SECONDS: Final = 1.0
"""Time in which the body of a refused HTTP request is discarded. Per request."""
# Further connections are closed with the answer.
HTTP_DRAINS_MAX: Final = 100
"""Most connections at once whose refused bodies are discarded. Per server."""
# One tenant or token may hold half of the places here and below: see `shares`.
HTTP_REQUESTS_MAX: Final = 1_000
"""Most HTTP requests at once, half of them of one token. Further ones get a 503. Per server."""
HTTP_RETRY_SECONDS: Final = 2
# Answers to expensive reads are compressed from this size on, and beyond the second size in a
# thread, because it takes milliseconds.
HTTP_GZIP_BYTES_MIN: Final = 1024
HTTP_GZIP_THREAD_BYTES: Final = 32 * 1024
# On PostgreSQL each has a connection of its own, apart from those of enqueues, leases and settles.
HTTP_READS_MAX: Final = 4
"""Most lists, counts and other expensive reads at once, half of them of one token. Per server."""
HTTP_READS_WAITING_MAX: Final = 100
"""Most expensive reads that wait, half of them of one token. Others get a 429. Per server."""
# While the database is unavailable, the log says so at this interval.
HTTP_COMPLAINT_SECONDS: Final = 10.0
# Proxies cut connections that are silent for a minute.
HTTP_WAIT_SECONDS_MAX: Final = 55.0
"""Longest `wait` of a lease call over HTTP. Per request."""
# Longer than clients and proxies keep an idle connection, so that they are the ones to close it.
HTTP_KEEP_ALIVE_SECONDS: Final = 75
"""Time after which an idle HTTP connection is closed. Per connection."""
HTTP_WRITE_SECONDS: Final = 30.0
"""Time after which a connection is closed if its client reads no answer. Per connection."""
# A connection costs some 10 KiB. If all are in use, idle ones are closed, and new ones get a 503 if
# none is idle.
HTTP_CONNECTIONS_MAX: Final = 10_000
"""Most HTTP connections, or fewer if the process may have fewer open files. Per server."""
# Open files that are kept for the database, for logs and for pages.
HTTP_FILES_RESERVED: Final = 200
HTTP_STOP_SECONDS: Final = 25.0
"""Time that HTTP requests get to finish after the server received a signal. Per server."""
HTTP_WAITERS_MAX: Final = 500
"""Most lease calls that wait, half of them of one token. Others return in a second. Per server."""
# Idle calls must not take the connections that enqueues and settles need.
HTTP_POLLS_MAX: Final = 4
"""Most waiting lease calls that ask the database at once, half of them of one token. Per server."""
# A client whose call can't wait would otherwise ask again at once, and again.
HTTP_CROWDED_SECONDS: Final = 1.0
# The bell wakes at most this many of them, and at most this often.
HTTP_RING_WAKES: Final = 4
HTTP_RING_SECONDS: Final = 0.02
HTTP_LEASE_LIMIT_MAX: Final = 500
"""Most jobs per lease call over HTTP. Per request."""
HTTP_LEASE_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of payloads of a lease call over HTTP, but at least one job. Per request."""
HTTP_LEASE_SECONDS_MAX: Final = DAY_SECONDS
"""Longest lease over HTTP. Per request."""
# A longer name, escaped as in a URL, is replaced by its digest: the worker's own name needs room.
WORKER_TENANT_CHARACTERS_MAX: Final = 64
# The server announces HTTP workers on their behalf. All announcements are read to list kinds, and
# to say why a job waits, so what one token or tenant announces in ten minutes is bounded.
HTTP_WORKER_KINDS_MAX: Final = 1_000
"""Most kinds that a worker names in a lease call over HTTP. Per request."""
HTTP_WORKER_QUEUES_MAX: Final = 100
"""Most queues that a worker names in a lease call over HTTP. Per request."""
HTTP_ANNOUNCED_NAMES_MAX: Final = 2_000
"""Most different kinds and queues that HTTP workers announce to a server. Per token."""
HTTP_ANNOUNCED_WORKERS_MAX: Final = 2_000
"""Most HTTP workers that ask a server for jobs within ten minutes. Per token."""
HTTP_ANNOUNCED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Most bytes of kinds and queues that HTTP workers announce to a server. Per token."""
HTTP_KINDS_LIMIT_MAX: Final = 1_000
"""Most kinds per page over HTTP. Per request."""
# Full jobs are large: a page of them over HTTP is smaller than in the library.
ENVIRONMENT_CHARACTERS_MAX: Final = 40
"""Longest name of an environment that the dashboard shows."""
HTTP_LIST_LIMIT_MAX: Final = 200
"""Most items per page over HTTP. Per request."""
# Room for a name of 200 characters in any language, sealed.
HTTP_CURSOR_CHARACTERS_MAX: Final = 2_000
HTTP_READY_SECONDS: Final = 5.0
"""Longest time that `/readyz` waits for the database. Per request."""
# Other probes within this time get the same answer.
HTTP_READY_KNOWN_SECONDS: Final = 1.0
HTTP_GATHER_JOBS: Final = 500
"""Most jobs of concurrent HTTP requests that share a transaction. Per transaction."""
HTTP_GATHER_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of jobs of concurrent HTTP requests that share a transaction. Per transaction."""
IDEMPOTENCY_KEEP_SECONDS: Final = DAY_SECONDS
"""Time that the answer to a request with an `Idempotency-Key` is kept: 24 hours."""
TOKEN_KNOWN_SECONDS: Final = 1.0
"""Time that a valid token is cached. A revoked one may work this long elsewhere. Per token."""
TOKENS_KNOWN_MAX: Final = 10_000
"""Most valid tokens that are cached. Per server."""
# Lookups of tokens at once: in all, and of those from addresses that sent many invalid ones.
TOKEN_LOOKUPS_MAX: Final = 16
"""Most tokens that are looked up at once. Per server."""
TOKEN_LOOKUPS_SUSPECT_MAX: Final = 1
"""Most tokens looked up at once from addresses that sent many invalid ones. Per server."""
TOKEN_USE_SECONDS: Final = 60.0
"""Interval at which the last use of a token is stored. Per token."""
SESSION_SECONDS: Final = DAY_SECONDS / 2
"""Lifetime of a session of the dashboard, and of a login link: 12 hours."""
# Read before anybody knows who sent it.
HTTP_SESSION_BYTES_MAX: Final = 4_096
"""Largest body of a request to sign in. Per request."""
SESSIONS_PER_TOKEN_MAX: Final = 100
"""Most sessions. When another one starts, the oldest one ends. Per token."""
AUTH_FAILURES_MAX: Final = 20
"""Invalid tokens after which further invalid ones are answered with 429. Per address."""
AUTH_FAILURES_SECONDS: Final = 60.0
"""Window in which invalid tokens are counted. Per address."""
AUTH_ADDRESSES_MAX: Final = 10_000
"""Most addresses and token ids whose invalid tokens are counted. Per server."""
# Invalid tokens are logged at most this often.
AUTH_LOG_SECONDS: Final = 10.0
# A proxy's list of addresses is read from its end, up to this many.
FORWARDED_HOPS_MAX: Final = 20
# The audit log is read weeks later, seldom after a quarter of a year.
AUDIT_KEEP_SECONDS: Final = 90 * DAY_SECONDS
"""Retention of the audit log: 90 days."""
# A name of 200 characters, whatever their language.
AUDIT_NAME_BYTES_MAX: Final = 4 * NAME_CHARACTERS_MAX
BULK_SCAN_ROWS: Final = 5_000
"""Most rows that one step of a bulk operation reads, however few of them match."""
BULK_LOOK_SECONDS: Final = 30.0
"""Interval at which a server checks for bulk operations that another server left unfinished."""
# A bulk operation names at most this many jobs that it skipped.
BULK_SKIPPED_MAX: Final = 1_000
BULK_KEEP_SECONDS: Final = 30 * DAY_SECONDS
"""Retention of the records of bulk operations: 30 days."""

# History. The limit holds per process and per slot of time.
TALLY_NAMES_MAX: Final = 200
"""Most pairs of queue and kind in metrics and history. Those of the app's tasks come first."""
# In a batch of up to this many runs all are timed. In a larger one every second, third and so on.
TALLY_TIMED_MAX: Final = 64
# A process writes its sums at this interval. A killed process loses the sums since the last write.
HISTORY_WRITE_SECONDS: Final = 10.0
HISTORY_KEEP_SECONDS: Final = 7 * DAY_SECONDS
"""Retention of history: one week."""
# The age at which sums are folded, and the length of the slots they are folded into: for a chart of
# an hour, a day, a week.
HISTORY_FOLDS: Final = ((600.0, 60), (7_200.0, 300), (90_000.0, 3_600))
# The interval of folding, and its rows per transaction.
HISTORY_FOLD_SECONDS: Final = 30.0
HISTORY_FOLD_ROWS: Final = 2_000
# A query adds up at most this many rows, into at most this many points in time and series.
HISTORY_ROWS_MAX: Final = 100_000
HISTORY_POINTS_MAX: Final = 1_500
HISTORY_SERIES_MAX: Final = 100

# Events. A process writes its events, and a server with listeners reads them, at most this often.
EVENTS_SECONDS: Final = 0.5
EVENTS_KEEP_SECONDS: Final = 600.0
"""Retention of events: ten minutes. Per database."""
# A row holds at most this many single events. Further ones are only counted.
EVENTS_SINGLE_MAX: Final = 25
# At most this many rows are read at once. The last ones are read again, for rows committed late.
EVENTS_ROWS_MAX: Final = 500
EVENTS_OVERLAP_ROWS: Final = 100
# New jobs are looked for among those created in the last seconds, up to this many.
EVENTS_NEW_SECONDS: Final = 3.0
EVENTS_NEW_MAX: Final = 200
EVENTS_BUFFER_MAX: Final = 1_000
"""Most events buffered for a client that reads too slowly. The oldest are lost. Per stream."""
HTTP_LISTENERS_MAX: Final = 200
"""Most open event streams, half of them of one token. Per server."""
# Without events, a comment is sent at this interval, so that proxies keep the connection open.
HTTP_STREAM_BEAT_SECONDS: Final = 15.0

# Metrics. A child publishes its counts at this interval. The bytes hold two hundred names, twice.
SHARED_COUNTS_SECONDS: Final = 1.0
SHARED_COUNTS_BYTES: Final = 1024 * 1024
# Longer than a claim takes when all is well, shorter than a call to a database that is silent.
READY_SECONDS: Final = 15.0
"""A child process of a worker that could not claim for this long is not ready."""
ALERT_SECONDS: Final = 30.0
"""Interval at which a server with `--alert-url` looks for reasons to send an alert."""
ALERT_AGE_SECONDS: Final = 300.0
ALERT_DEAD: Final = 10
# The time in which dead jobs are counted.
ALERT_DEAD_SECONDS: Final = 600.0
ALERT_CALL_SECONDS: Final = 5.0
"""Time that the receiver of an alert has to accept a connection, and to answer."""
ALERTS_SENT_MAX: Final = 100
"""Most alerts in one call. The rest follow with the next look."""
# Lines of the text that people read.
ALERT_LINES: Final = 20
METRICS_KNOWN_SECONDS: Final = 10.0
"""Time that the gauges of queues are cached before the database is queried again."""
# A count of all rows is exact, and reads both tables to their ends. If it takes long, the next one
# waits for a multiple of that time, so that counting takes at most 5 % of one connection.
METRICS_COUNT_SECONDS: Final = 60.0
"""Shortest time between two counts of all rows, for gauges beyond 10,000 jobs."""
METRICS_COUNT_SHARE: Final = 0.05
METRICS_COUNT_OLD_SECONDS: Final = 300.0
"""Age at which a count of all rows is no longer shown."""
# A worker's own port is asked by a few monitors. The newest connections are kept.
METRICS_PORT_CONNECTIONS_MAX: Final = 32
"""Most connections to the metrics port of a worker. Beyond it, the oldest one is closed."""
METRICS_PORT_SECONDS: Final = 10.0
"""Longest time that a connection to the metrics port of a worker may last."""
METRICS_PORT_BYTES_MAX: Final = 16 * 1024
"""Largest request to the metrics port of a worker."""

# An error has up to 64 KiB, so this many are read and decoded at a time.
DEAD_SAMPLES_READ: Final = 20
DEAD_GROUPS_MAX: Final = 500
"""Most groups of dead jobs, by error."""

"""Every bound, named, with the reason for its value. No I/O, no environment.

Those that users may meet have a text below, which the reference of limits shows.
"""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
DAY_SECONDS: Final = 86_400.0

# Names: long enough for a URL or a dotted path, short enough for an index entry and a NOTIFY.
NAME_CHARACTERS_MAX: Final = 200
"""Characters of a queue, kind, tenant, key, tag or worker."""
PRIORITY_MIN: Final = -100
"""The last of priorities."""
PRIORITY_MAX: Final = 100
"""The first of priorities."""

# Payloads are read by every claim. What is larger belongs into a file or a table of its own.
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""An encoded payload, or a result."""
# Deep enough for real data, far below where any JSON parser of any language recurses to death.
PAYLOAD_DEPTH_MAX: Final = 64
"""Levels of nesting of a payload."""
# What CPython converts without complaint; beyond, int() itself refuses.
INTEGER_DIGITS_MAX: Final = 4_300
"""Digits of an integer in a payload."""
# Every bad field is named, but a list of a million NULs must not make a message of a gigabyte.
FIELD_ERRORS_MAX: Final = 1_000
"""Bad fields that a `PayloadInvalid` names."""
# Meta and tags are context, not content.
META_BYTES_MAX: Final = 16 * 1024
"""The `meta` of a job; and as much for all its tags together."""
TAGS_MAX: Final = 20
"""Tags of a job."""

ERROR_BYTES_MAX: Final = 64 * 1024
"""One stored error; longer ones lose their middle."""
ERRORS_KEPT: Final = 20
"""Errors kept on a job, the last ones."""
# The innermost frames of each exception of a chain; endless recursion is no reason to wait for it.
ERROR_FRAMES_MAX: Final = 100
"""Frames of a traceback, the innermost ones."""
LOG_LINES_MAX: Final = 1_000
"""Lines of a job's log."""
LOG_LINE_BYTES_MAX: Final = 4 * 1024
"""A line of it."""
PROGRESS_TEXT_BYTES_MAX: Final = 1024
"""The text of a progress."""
# Of an error, the worker's log gets the beginning of the first line; the job keeps the whole.
LOGGED_ERROR_CHARACTERS_MAX: Final = 200
"""An error, in the log of a worker."""
# No line of a log is longer, whatever a library puts into it: collectors cut or drop such lines.
LOGGED_CHARACTERS_MAX: Final = 16 * 1024
"""A message or a traceback, in the log of a worker."""

MAX_ATTEMPTS_DEFAULT: Final = 20
"""Attempts of a job, by default."""
MAX_ATTEMPTS_LIMIT: Final = 1_000_000
"""And at most."""
# A rolling deployment may have workers of both versions for some minutes; after that, no further
# attempt can help.
MISFIT_RETRY_SECONDS: Final = (60, 240, 600)
"""Waits of a job whose payload does not fit its task's parameters; after the last it is dead."""
MAX_CRASHES_DEFAULT: Final = 3
"""Deaths of its process, alone in it, after which a job is dead."""
SUSPECT_LOSSES: Final = 2
"""Leases lost in a row after which a job runs alone, and its run is marked as begun first."""
INTERRUPTIONS_MAX: Final = 20
"""Interrupted runs that were not counted as attempts, after which a job is dead."""
NOT_BEGUN_SECONDS: Final = 1
"""Pause after a job was given back because its run could not begin."""
SUSPECT_WAIT_SECONDS: Final = 2.0
"""Pause of a suspect while this machine runs another one."""
SLOT_RETRY_SECONDS: Final = 5.0
"""Pause of a job whose process slot could not be started."""
KEEP_SECONDS_DEFAULT: Final = DAY_SECONDS
"""A succeeded or cancelled job is kept for a day, by default."""
KEEP_DEAD_SECONDS_DEFAULT: Final = 30 * DAY_SECONDS
"""A dead one for 30 days, by default."""
# A hundred years: later is a mistake in units, and must not overflow a 64-bit microsecond.
DURATION_SECONDS_MAX: Final = 100 * 365 * DAY_SECONDS
"""Any duration: a hundred years."""
# A resend of an enqueue whose answer was lost comes within minutes, or never.
ID_REMEMBERED_SECONDS: Final = 15 * 60.0
"""How long an id is known after its job ended, at least."""
# A Release without a delay must not spin.
RELEASE_SECONDS_DEFAULT: Final = 1.0
"""A `Release` without a delay."""

LEASE_SECONDS_DEFAULT: Final = 30.0
"""A lease, by default."""
CLAIM_LIMIT_MAX: Final = 10_000
"""Jobs of one claim."""
ENQUEUE_MANY_MAX: Final = 10_000_000
"""Jobs of one `enqueue_many`."""
# One statement's rows: large enough to be fast, small enough to hold no lock for long.
BATCH_ROWS: Final = 1_000
"""Rows that one statement inserts."""
# From how many on jobs are copied, and how many at a time.
COPY_ROWS_MIN: Final = 200
COPY_ROWS_MAX: Final = 10_000
MAINTENANCE_BATCH_ROWS: Final = 500
"""Rows after which recovery, retention and bulk retries commit."""
BULK_BYTES: Final = 16 * 1024 * 1024
"""Payloads and results of the jobs that a step of bulk work cancels or retries."""
MOVE_BATCH_ROWS: Final = 200
"""Jobs that `rowlock move` holds at a time."""
MOVE_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Payloads and results of those jobs, by the average size of the last ones."""
MOVE_STATEMENT_BYTES: Final = 4 * 2**20
"""Of the jobs that one statement of a move inserts, as JSON."""
MOVE_LOOK_SECONDS: Final = 0.5
"""How often a move looks for jobs that still run."""
MOVE_PATIENCE_SECONDS: Final = 60.0
"""How long a move bears with a database that is away."""
LIST_LIMIT_DEFAULT: Final = 100
"""Jobs of a page, by default."""
LIST_LIMIT_MAX: Final = 1_000
"""And at most."""
# A page never reads more rows than this, however rare a match is; it returns a cursor to go on.
# With 50,000, among a million waiting jobs, a page that nothing matched took 110 ms.
PAGE_SCAN_ROWS_MAX: Final = 20_000
"""Rows that a page of jobs reads before it returns a cursor to go on."""
LIST_SCAN_ROWS_MAX: Final = 50_000
"""Rows that a count or a list of groups reads; it says when there are more."""
COUNT_EXACT_MAX: Final = 10_000
"""Counts are exact so far."""

# Schedules. A tick found within this time was late, not missed: a restart, a clock set forward by a
# minute or two, a scheduler that was asleep when the schedule was written.
SCHEDULE_LATE_SECONDS: Final = 300.0
"""A tick found within this time is late, not missed."""
SCHEDULE_MISSED_MAX: Final = 100
"""Ticks that `missed="all"` makes up for, the last ones."""
SCHEDULE_BATCH_ROWS: Final = 50
"""Schedules that one transaction fires."""
# A scheduler looks at least so often: without a bell, that is when it sees what others wrote.
SCHEDULER_SLEEP_SECONDS_MAX: Final = 30.0
"""A scheduler looks at least so often."""
# With a bell no more often than this: in SQLite every write rings it.
SCHEDULER_REST_SECONDS: Final = 1.0
"""And no more often than this when the bell rings."""
# Expired leases are given back after two looks in a row, so within twice this. A look that comes so
# long after the one before counts as the first, but not for ever: a look itself may take seconds
# where many write to a slow disk. Finished jobs need not go to the second.
SWEEP_SECONDS: Final = 2.5
"""Between two looks for expired leases, about; two in a row must find one."""
SWEEP_STALE_SECONDS: Final = 4.0
"""A look so long after another counts as the first: the database was away, or held."""
SWEEP_LOOKS_MAX: Final = 4
"""So many looks in a row find it expired: then it is taken, however late they came."""
# A worker extends its leases when two thirds are left, so a smaller step expires no lease of two
# seconds or more. Corrections by slewing are far slower than this between two looks.
CLOCK_STEP_SECONDS: Final = 1.0
"""The database's clock was set forward by more than this: expired leases wait for a heartbeat."""
# Beats are sent every third of a lease, and take a moment to arrive.
CLOCK_STEP_SLACK_SECONDS: Final = 2.0
"""After such a step, expired leases wait this long in addition to a third of their length."""
# A lease whose end the database refuses is left alone for this long, so that it holds up no other.
SWEEP_REFUSED_SECONDS: Final = 60.0
# Enough halvings to find a few refused rows among 500.
SWEEP_REFUSALS_MAX: Final = 50
# Enough to find one among 500: somebody waits for the claim.
CLAIM_REFUSALS_MAX: Final = 10
# Each of them may be locked in vain by every batch.
SET_ASIDE_MAX: Final = 1_000
PRUNE_SECONDS: Final = 60.0
"""Between two rounds of retention, about."""

# SQLite. How long a writer waits for the others before it gives up: far more than any batch takes.
SQLITE_BUSY_SECONDS: Final = 30.0
"""A writer waits so long for the others."""
# How long a writer pauses before it asks again for its turn, about: a few transactions' time.
SQLITE_LOCK_PAUSE_SECONDS: Final = 0.0005
# The log is folded into the file when it has grown by so many pages: fewer than the 1,000 at which
# connections of other libraries and users would do it by themselves.
SQLITE_WAL_FRAMES: Final = 750
# The log file is kept and overwritten; only what is longer than this is cut off. Twice the above.
SQLITE_WAL_BYTES_KEPT: Final = 6 * 1024 * 1024
# So long a reader may hold up the writer that folds the log.
SQLITE_CHECKPOINT_BUSY_MILLISECONDS: Final = 50
# A fork waits so long for the transactions of other threads.
SQLITE_FORK_WAIT_SECONDS: Final = 5.0
# How many requests of async callers share one transaction.
SQLITE_GROUP_MAX: Final = 256

# PostgreSQL.
POSTGRES_POOL_MAX: Final = 10
"""Connections of the threads of a process, and of each event loop."""
POSTGRES_POOL_WAIT_SECONDS: Final = 30.0
"""A call waits so long for a connection."""
# Of those, so many may be lent to handlers at once: beats, claims and settles need the others.
POSTGRES_BLOCKS_MAX: Final = 8
"""Connections that `ctx.transaction()` may have at once."""
POSTGRES_CONNECT_SECONDS: Final = 10
"""For a connection to be made."""
# A server that does not answer a statement for so long is taken for dead. Longer than a statement
# of ours takes, and than the keepalives need to notice a dead machine.
POSTGRES_CALL_SECONDS: Final = 30.0
# Statements are prepared from this use on, where nothing stands between us and the server.
POSTGRES_PREPARE_THRESHOLD: Final = 3
# A migration waits so long for the lock on a table, and everybody who wants to use that table waits
# behind it; then it lets them go on for a while, and tries again, so often.
MIGRATION_LOCK_SECONDS: Final = 1.0
MIGRATION_PAUSE_SECONDS: Final = 2.0
MIGRATION_TRIES_MAX: Final = 100
# A lost race (serialization, deadlock) or a lost connection is tried again so often.
STORE_TRIES_MAX: Final = 5
"""How often a lost race or connection is tried."""
STORE_RETRY_SECONDS: Final = 0.02
# The doorbell rings at most once in so long a time per queue and process.
BELL_SECONDS: Final = 0.005
BELL_QUEUE_BYTES_MAX: Final = 200
# A listener rings for itself so often, and must hear it within so long: a connection may be half
# dead, and behind a pooler LISTEN looks fine and stays silent.
BELL_PING_SECONDS: Final = 30.0
BELL_ANSWER_SECONDS: Final = 5.0

PROGRESS_SECONDS: Final = 0.5
"""Between two stored progresses of a run."""
NOTES_LAST_SECONDS: Final = 5.0
"""A run that has ended waits at most this long to store its last progress and log lines."""
# So many threads of a worker write it for coroutines and process slots: the loop's own may all be
# busy with the handlers' work.
NOTES_THREADS: Final = 2
# What a drain leases at a time; each job is settled as soon as it ended.
DRAIN_BATCH: Final = 20
"""Jobs that a drain leases at a time."""
WAIT_SECONDS: Final = 0.02
"""`app.wait` looks again after so long, at first."""
WAIT_SECONDS_MAX: Final = 0.5
"""And at last."""

# The worker. Slots of a child; a child's lease table has room for its slots and its buffer.
WORKER_CONCURRENCY_DEFAULT: Final = 20
"""Slots of a child, by default."""
WORKER_CONCURRENCY_MAX: Final = 1_000
"""And at most."""
WORKER_GRACE_SECONDS_DEFAULT: Final = 25.0
"""Running jobs may go on for so long after a signal, by default."""
WORKER_START_SECONDS_DEFAULT: Final = 60.0
"""At its start a worker waits this long for a migration, a role or its rights, by default."""
START_LOOK_SECONDS: Final = 1.0
"""A worker that waits to start looks at the database this often."""
LEASE_SECONDS_MIN: Final = 1.0
"""The shortest lease of a worker."""
ORPHANS_SECONDS_DEFAULT: Final = 300.0
"""Jobs that were not heard of for so long are orphans, by default."""
# Jobs are leased ahead of free slots only from queues whose own jobs take less than this. They
# should last about this long, and there are never more of them than the number below.
PREFETCH_SECONDS: Final = 0.1
"""Jobs are claimed ahead of free slots only in queues whose jobs take less than this."""
PREFETCH_MAX: Final = 500
"""Jobs that a child leases ahead."""
# Payloads of 16 KiB still fit 500 times.
PREFETCH_BYTES: Final = 8 * 1024 * 1024
"""Payloads that a child leases ahead, by the average size of the last ones."""
# How many queues a child remembers the duration of; of the others it claims for free slots only.
PREFETCH_QUEUES_MAX: Final = 1000
# For so long after jobs of several queues or priorities were seen, fewer are claimed ahead, and
# looks are more frequent: what comes next shall not wait behind a large batch. With 500, jobs of
# other queues waited 30 ms in a burst (p50), with 60 it is 9; but a job costs a tenth more.
MIXED_SECONDS: Final = 1.0
"""Jobs of several queues or priorities were seen within this time: they come mixed."""
PREFETCH_MIXED_MAX: Final = 60
"""Jobs that a child leases ahead while they come mixed."""
LOOK_MIXED_SECONDS: Final = 0.004
"""Between two looks for due jobs while they come mixed, at least."""
# Below this, jobs are leased by many; above, for every slot that is free.
SHORT_JOB_SECONDS: Final = 0.02
# A job that waits in a child for longer goes back: no-ops may have turned into long jobs.
PREFETCH_STALE_SECONDS: Final = 1.0
"""What waits longer for a slot goes back."""
# Outcomes are written together, at the latest after so long.
SETTLE_SECONDS: Final = 0.003
SETTLE_BATCH: Final = 500
# Results, payloads and follow-ups of one batch: a statement of this size takes well under a second,
# and a server's `statement_timeout` is seldom shorter.
SETTLE_BYTES: Final = 4 * 1024 * 1024
"""Results, payloads and follow-up jobs that a worker writes in one transaction."""
# Outcomes that wait to be written: when there are more, or they are larger, nothing is claimed.
SETTLE_BACKLOG_MAX: Final = 1_500
SETTLE_BACKLOG_BYTES: Final = 32 * 1024 * 1024
"""Results and payloads that wait in a child to be written; beyond, it claims nothing."""
LOOK_SECONDS: Final = 0.01
"""Between two looks for due jobs while there is work, at least."""
LOOK_SECONDS_MAX: Final = 2.0
"""And at most, however much a look costs."""
# How often to look without, and with, a bell.
POLL_SECONDS: Final = 0.5
POLL_SECONDS_WITH_BELL: Final = 1.0
CANCEL_GRACE_SECONDS: Final = 10.0
"""A run may go on for so long after a request to cancel before its process is ended."""
# A bell may tell of a request to cancel: that is looked for at most this often.
CANCEL_LOOK_SECONDS: Final = 0.2
# A service that fails tries again after pauses that grow between these, with jitter.
TROUBLE_SECONDS: Final = 0.1
TROUBLE_SECONDS_MAX: Final = 10.0
# A beat that failed is tried again within this: sooner than two sweeps take.
BEAT_RETRY_SECONDS_MAX: Final = 1.5
# A worker says that it is there so often; one that was silent for so long is taken for dead; and
# forgotten after so long.
ANNOUNCE_SECONDS: Final = 10.0
# One whose slots were taken or became free says so sooner, at most this often.
ANNOUNCE_CHANGED_SECONDS: Final = 2.0
"""A worker says how many of its slots are taken at most this often."""
WORKER_SILENT_SECONDS: Final = 60.0
"""A worker that was silent for so long is taken for dead."""
WORKER_FORGOTTEN_SECONDS: Final = 600.0
# A child's event loop says that it turns this often. One that has not for the time below is
# stalled: what it holds and has not begun is given back, after a pause that lets both processes
# see what the other has written.
PULSE_SECONDS: Final = 0.25
STALL_SECONDS: Final = 2.0
"""A handler that blocks its child's event loop for this long: other jobs of the child go back."""
REVOKE_SECONDS: Final = 0.1
# A child that dies before it ran anything is replaced after a pause between these.
RESPAWN_SECONDS: Final = 0.1
RESPAWN_SECONDS_MAX: Final = 30.0
# How many outcomes of a dead child's jobs are written in one transaction, at first.
BURY_ROWS: Final = 100
# After a child's death its leases are given back again: a claim may still have been on its way.
GIVE_BACK_AGAIN_SECONDS: Final = (1.0, 3.0)
TIMEOUT_GRACE_SECONDS: Final = 2.0
"""A run may go on for so long past its limit before its process is ended."""
# A plain function that can't be interrupted just now, because it logs, imports or is in a call of
# ours, is tried again so often.
INTERRUPT_SECONDS: Final = 0.01
CANCEL_SEEN_SECONDS: Final = 5.0
"""`Cancel` is raised so much later in a plain function that looks at `ctx.cancel_requested`."""
# A child that must leave because a run of it does not stop says within this time that it has
# heard: otherwise its loop is blocked, so none of its other jobs can end either.
LEAVE_HEARD_SECONDS: Final = 5.0
"""A child whose loop is blocked by a run past its limit is ended after so long."""
# One that leaves has a successor at once, but not a third one: its grace may outlast several.
CHILDREN_OF_PLACE_MAX: Final = 2
# `timeout` of the coreutils signals a process and then its group, and so do some terminals and
# service managers. A person takes longer to press Ctrl-C again.
SECOND_SIGNAL_SECONDS: Final = 1.0
"""A second signal counts as "end at once" if it comes at least so long after the first."""
# How long cancelled coroutines get to clean up when a worker ends.
STOP_SECONDS: Final = 2.0
# Process slots. The app must be loaded within this time; a slot without work is ended after so
# long; and no message between a slot and its worker is larger: a mistake must not fill the memory.
SLOT_START_SECONDS: Final = 60.0
"""For a process slot to import the app."""
SLOT_IDLE_SECONDS: Final = 60.0
"""A process slot without a job is ended after so long."""
SLOT_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""One message between a worker and a process slot."""
# A slot's last words are waited for so long after its death.
SLOT_LAST_WORDS_SECONDS: Final = 0.5
# `--reload` looks so often, at so many files at most: a look takes a tenth of a second then.
RELOAD_SECONDS: Final = 1.0
"""Between two looks of `--reload`."""
RELOAD_FILES_MAX: Final = 10_000
"""Files that `--reload` looks at."""

# The server. A body of one job: a payload of the largest size, every character of it escaped.
HTTP_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""A request to the server."""
HTTP_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""A batch, or settlements."""
# The lists of a longer body are counted before anything is made of them.
HTTP_OUTLINE_BYTES: Final = 1024 * 1024
HTTP_BATCH_MAX: Final = 10_000
"""Jobs, leases or settlements of one request."""
# A settlement may have a hundred, checked and written with it: all of them no more than a batch.
HTTP_FOLLOW_UPS_MAX: Final = 10_000
"""Jobs that follow the settlements of one request, in all."""
# What real clients send is a tenth of this; a parser must not be fed for ever.
HTTP_HEADER_BYTES_MAX: Final = 64 * 1024
"""The head of a request."""
HTTP_HEADER_SECONDS: Final = 10.0
"""For the head of a request to come; a slow one holds a connection."""
HTTP_BODY_SECONDS: Final = 30.0
"""For its body to come."""
# Of a request that is refused before its body was read, so much is read and thrown away.
HTTP_DRAIN_BYTES_MAX: Final = 256 * 1024
HTTP_DRAIN_SECONDS: Final = 1.0
# So many requests are worked on at once, those that wait for jobs among them; beyond, come again.
HTTP_REQUESTS_MAX: Final = 1_000
"""Requests that are worked on at once."""
HTTP_RETRY_SECONDS: Final = 2
# While the database is away, the log says so once in so long a time.
HTTP_COMPLAINT_SECONDS: Final = 10.0
# Proxies cut connections that are silent for a minute.
HTTP_WAIT_SECONDS_MAX: Final = 55.0
"""A lease call's `wait`."""
# Longer than clients and proxies keep an idle connection, so that they are the ones to close it.
HTTP_KEEP_ALIVE_SECONDS: Final = 75
"""An idle connection."""
HTTP_STOP_SECONDS: Final = 25.0
"""Requests may go on for so long after a signal."""
HTTP_WAITERS_MAX: Final = 500
"""Calls that wait for jobs at once; beyond, they are answered with none at once."""
# A ring of the bell wakes so many of them, and at most this often.
HTTP_RING_WAKES: Final = 4
HTTP_RING_SECONDS: Final = 0.02
# Jobs of one lease call, with their payloads.
HTTP_LEASE_LIMIT_MAX: Final = 500
"""Jobs of one lease call."""
HTTP_LEASE_BYTES: Final = 8 * 1024 * 1024
"""Payloads of one lease call: an answer ends before the job that would exceed it, but not empty."""
HTTP_LEASE_SECONDS_MAX: Final = DAY_SECONDS
"""A lease over HTTP."""
# Workers that were announced on their behalf are remembered, up to so many.
HTTP_WORKERS_NOTED_MAX: Final = 10_000
# Full jobs are large: a page of them over HTTP is smaller than in the library.
HTTP_LIST_LIMIT_MAX: Final = 200
"""Items of a page over HTTP."""
# How long a probe waits for the database, and how long its answer counts for others.
HTTP_READY_SECONDS: Final = 5.0
"""`/readyz` waits so long for the database."""
HTTP_READY_KNOWN_SECONDS: Final = 1.0
# Jobs of requests that come together share a transaction: so many, of so many bytes.
HTTP_GATHER_JOBS: Final = 500
HTTP_GATHER_BYTES: Final = 4 * 1024 * 1024
TOKEN_KNOWN_SECONDS: Final = 1.0
"""A good token is not looked up again; a revoked one may work so long on other servers."""
TOKENS_KNOWN_MAX: Final = 10_000
AUTH_FAILURES_MAX: Final = 20
"""Bad tokens of one address; then they are refused without a look."""
AUTH_FAILURES_SECONDS: Final = 60.0
"""In so long a time."""
AUTH_ADDRESSES_MAX: Final = 10_000
# Who did what is asked for weeks later, seldom after a quarter of a year.
AUDIT_KEEP_SECONDS: Final = 90 * DAY_SECONDS
"""Who did what is kept for 90 days."""
AUDIT_TARGET_BYTES_MAX: Final = 800
BULK_SCAN_ROWS: Final = 5_000
"""Rows that a step of work on many jobs reads, however few of them fit."""
BULK_LOOK_SECONDS: Final = 30.0
"""A server looks so often for work on many jobs that another one has left."""
# Jobs that could not be worked on are named, up to so many.
BULK_SKIPPED_MAX: Final = 1_000
BULK_KEEP_SECONDS: Final = 30 * DAY_SECONDS
"""Records of work on many jobs are kept for 30 days."""

# History. Pairs of queue and kind that one process, or one slot of time, tells apart.
TALLY_NAMES_MAX: Final = 200
"""Pairs of queue and kind that metrics and history tell apart."""
# Of a batch of so many runs all are timed; of a larger one every second, third and so on.
TALLY_TIMED_MAX: Final = 64
# A process writes its sums so often; a killed one loses those of so long.
HISTORY_WRITE_SECONDS: Final = 10.0
HISTORY_KEEP_SECONDS: Final = 7 * DAY_SECONDS
"""History is kept for a week."""
# How old sums are when they are folded, and into slots of how many seconds: for a chart of an hour,
# of a day, of a week.
HISTORY_FOLDS: Final = ((600.0, 60), (7_200.0, 300), (90_000.0, 3_600))
# Folding looks so often, and takes so many rows a transaction.
HISTORY_FOLD_SECONDS: Final = 30.0
HISTORY_FOLD_ROWS: Final = 2_000
# An answer adds up so many rows, of at most so many points in time and lines.
HISTORY_ROWS_MAX: Final = 100_000
HISTORY_POINTS_MAX: Final = 1_500
HISTORY_SERIES_MAX: Final = 100

# Events. A process writes what happened so often, at most; a server reads it so often, while
# somebody listens; and it is kept for so long.
EVENTS_SECONDS: Final = 0.5
EVENTS_KEEP_SECONDS: Final = 600.0
"""Events are kept for ten minutes."""
# A row tells of so many things one by one, and of so many more by their numbers.
EVENTS_SINGLE_MAX: Final = 25
# So many rows are read at once. Rows that are committed late are looked for among the last ones.
EVENTS_ROWS_MAX: Final = 500
EVENTS_OVERLAP_ROWS: Final = 100
# New jobs are looked for among those made in the last seconds, so many of them.
EVENTS_NEW_SECONDS: Final = 3.0
EVENTS_NEW_MAX: Final = 200
EVENTS_BUFFER_MAX: Final = 1_000
"""A listener that reads slowly loses the oldest of so many events."""
HTTP_LISTENERS_MAX: Final = 200
"""Streams of events at once."""
# Without news, a word so often, so that proxies do not take the line for dead.
HTTP_STREAM_BEAT_SECONDS: Final = 15.0

# Metrics. A child shows its counts so often, in so many bytes: two hundred names, twice.
SHARED_COUNTS_SECONDS: Final = 1.0
SHARED_COUNTS_BYTES: Final = 1024 * 1024
# A child that could not claim for so long is not ready: longer than a claim may take when all is
# well, shorter than a call to a database that is silent.
READY_SECONDS: Final = 15.0
"""A child of a worker that could not claim for so long is not ready."""
METRICS_KNOWN_SECONDS: Final = 10.0
"""Gauges of queues come from one look at the database, which is repeated after this long."""
# A count of all rows is exact, and reads both tables to their ends. Of a count that takes long, the
# next one waits for a multiple of that time: it takes at most 5 % of one connection.
METRICS_COUNT_SECONDS: Final = 60.0
"""Gauges beyond 10,000 jobs come from a count of all rows, made at most this often."""
METRICS_COUNT_SHARE: Final = 0.05
METRICS_COUNT_OLD_SECONDS: Final = 300.0
"""A count of all rows is not shown any more after this long."""

DEAD_GROUPS_MAX: Final = 500
"""Groups of dead jobs, by what they died of."""

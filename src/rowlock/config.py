"""Every bound, named, with the reason for its value. No I/O, no environment."""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
DAY_SECONDS: Final = 86_400.0

# Names: long enough for a URL or a dotted path, short enough for an index entry and a NOTIFY.
NAME_CHARACTERS_MAX: Final = 200
PRIORITY_MIN: Final = -100
PRIORITY_MAX: Final = 100

# Payloads are read by every claim. What is larger belongs into a file or a table of its own.
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
# Deep enough for real data, far below where any JSON parser of any language recurses to death.
PAYLOAD_DEPTH_MAX: Final = 64
# What CPython converts without complaint; beyond, int() itself refuses.
INTEGER_DIGITS_MAX: Final = 4_300
# Every bad field is named, but a list of a million NULs must not make a message of a gigabyte.
FIELD_ERRORS_MAX: Final = 1_000
# Meta and tags are context, not content.
META_BYTES_MAX: Final = 16 * 1024
TAGS_MAX: Final = 20

ERROR_BYTES_MAX: Final = 64 * 1024
ERRORS_KEPT: Final = 20
# The innermost frames of each exception of a chain; endless recursion is no reason to wait for it.
ERROR_FRAMES_MAX: Final = 100
LOG_LINES_MAX: Final = 1_000
LOG_LINE_BYTES_MAX: Final = 4 * 1024
PROGRESS_TEXT_BYTES_MAX: Final = 1024
# Of an error, the worker's log gets the beginning of the first line; the job keeps the whole.
LOGGED_ERROR_CHARACTERS_MAX: Final = 200
# No line of a log is longer, whatever a library puts into it: collectors cut or drop such lines.
LOGGED_CHARACTERS_MAX: Final = 16 * 1024

MAX_ATTEMPTS_DEFAULT: Final = 20
MAX_ATTEMPTS_LIMIT: Final = 1_000_000
MAX_CRASHES_DEFAULT: Final = 3
KEEP_SECONDS_DEFAULT: Final = DAY_SECONDS
KEEP_DEAD_SECONDS_DEFAULT: Final = 30 * DAY_SECONDS
# A hundred years: later is a mistake in units, and must not overflow a 64-bit microsecond.
DURATION_SECONDS_MAX: Final = 100 * 365 * DAY_SECONDS
# A resend of an enqueue whose answer was lost comes within minutes, or never.
ID_REMEMBERED_SECONDS: Final = 15 * 60.0
# A Release without a delay must not spin.
RELEASE_SECONDS_DEFAULT: Final = 1.0

LEASE_SECONDS_DEFAULT: Final = 30.0
CLAIM_LIMIT_MAX: Final = 10_000
ENQUEUE_MANY_MAX: Final = 10_000_000
# One statement's rows: large enough to be fast, small enough to hold no lock for long.
BATCH_ROWS: Final = 1_000
# From how many on jobs are copied, and how many at a time.
COPY_ROWS_MIN: Final = 200
COPY_ROWS_MAX: Final = 10_000
# Recovery, retention and bulk work commit after so many rows.
MAINTENANCE_BATCH_ROWS: Final = 500
# A move holds so many jobs at a time, looks so often for those that still run, and bears so long
# with a database that is away.
MOVE_BATCH_ROWS: Final = 200
MOVE_LOOK_SECONDS: Final = 0.5
MOVE_PATIENCE_SECONDS: Final = 60.0
LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1_000
# A page never reads more rows than this, however rare a match is; it returns a cursor to go on.
# With 50,000, among a million waiting jobs, a page that nothing matched took 110 ms.
PAGE_SCAN_ROWS_MAX: Final = 20_000
# Counts and groups.
LIST_SCAN_ROWS_MAX: Final = 50_000
COUNT_EXACT_MAX: Final = 10_000

# Schedules. A tick found within this time was late, not missed: a restart, a clock set forward by a
# minute or two, a scheduler that was asleep when the schedule was written.
SCHEDULE_LATE_SECONDS: Final = 300.0
# Of the ticks missed, `missed="all"` makes up for so many, the last ones.
SCHEDULE_MISSED_MAX: Final = 100
# One transaction fires the ticks of so many schedules.
SCHEDULE_BATCH_ROWS: Final = 50
# A scheduler looks at least so often: without a bell, that is when it sees what others wrote.
SCHEDULER_SLEEP_SECONDS_MAX: Final = 30.0
# With a bell no more often than this: in SQLite every write rings it.
SCHEDULER_REST_SECONDS: Final = 1.0
# While the database is away, services look again after so long, at first and at last.
SERVICE_RETRY_SECONDS: Final = 0.5
SERVICE_RETRY_SECONDS_MAX: Final = 30.0
# Expired leases are given back after two looks in a row, so within twice this. A look that comes so
# long after the one before counts as the first, but not for ever: a look itself may take seconds
# where many write to a slow disk. Finished jobs need not go to the second.
SWEEP_SECONDS: Final = 2.5
SWEEP_STALE_SECONDS: Final = 4.0
SWEEP_LOOKS_MAX: Final = 4
PRUNE_SECONDS: Final = 60.0

# SQLite. How long a writer waits for the others before it gives up: far more than any batch takes.
SQLITE_BUSY_SECONDS: Final = 30.0
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
POSTGRES_POOL_WAIT_SECONDS: Final = 30.0
# Of those, so many may be lent to handlers at once: beats, claims and settles need the others.
POSTGRES_BLOCKS_MAX: Final = 8
POSTGRES_CONNECT_SECONDS: Final = 10
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
STORE_RETRY_SECONDS: Final = 0.02
# The doorbell rings at most once in so long a time per queue and process.
BELL_SECONDS: Final = 0.005
BELL_QUEUE_BYTES_MAX: Final = 200
# A listener rings for itself so often, and must hear it within so long: a connection may be half
# dead, and behind a pooler LISTEN looks fine and stays silent.
BELL_PING_SECONDS: Final = 30.0
BELL_ANSWER_SECONDS: Final = 5.0

# A run's progress is written at most twice a second.
PROGRESS_SECONDS: Final = 0.5
# So many threads of a worker write it for coroutines and process slots: the loop's own may all be
# busy with the handlers' work.
NOTES_THREADS: Final = 2
# What a drain leases at a time; each job is settled as soon as it ended.
DRAIN_BATCH: Final = 20
# app.wait() looks again after so long, at first and at last.
WAIT_SECONDS: Final = 0.02
WAIT_SECONDS_MAX: Final = 0.5

# The worker. Slots of a child; a child's lease table has room for its slots and its buffer.
WORKER_CONCURRENCY_DEFAULT: Final = 20
WORKER_CONCURRENCY_MAX: Final = 1_000
WORKER_GRACE_SECONDS_DEFAULT: Final = 25.0
LEASE_SECONDS_MIN: Final = 1.0
ORPHANS_SECONDS_DEFAULT: Final = 300.0
# What is claimed ahead should last so long, and never be more than so many jobs.
PREFETCH_SECONDS: Final = 0.1
PREFETCH_MAX: Final = 500
# For so long after jobs of several queues or priorities were seen, fewer are claimed ahead, and
# looks are more frequent: what comes next shall not wait behind a large batch. With 500, jobs of
# other queues waited 30 ms in a burst (p50), with 60 it is 9; but a job costs a tenth more.
MIXED_SECONDS: Final = 1.0
PREFETCH_MIXED_MAX: Final = 60
LOOK_MIXED_SECONDS: Final = 0.004
# Below this, jobs are leased by many; above, for every slot that is free.
SHORT_JOB_SECONDS: Final = 0.02
# A job that waits in a child for longer goes back: no-ops may have turned into long jobs.
PREFETCH_STALE_SECONDS: Final = 1.0
# Outcomes are written together, at the latest after so long.
SETTLE_SECONDS: Final = 0.003
SETTLE_BATCH: Final = 500
# Outcomes that wait to be written: when there are more, nothing is claimed.
SETTLE_BACKLOG_MAX: Final = 1_500
# Between two looks for due jobs while there is work, at least, and at most whatever they cost.
LOOK_SECONDS: Final = 0.01
LOOK_SECONDS_MAX: Final = 2.0
# How often to look without, and with, a bell.
POLL_SECONDS: Final = 0.5
POLL_SECONDS_WITH_BELL: Final = 1.0
# A cancelled run that does not end after so long is ended with its process.
CANCEL_GRACE_SECONDS: Final = 10.0
# A bell may tell of a request to cancel: that is looked for at most this often.
CANCEL_LOOK_SECONDS: Final = 0.2
# Trouble with the database is met with pauses between these, with jitter.
TROUBLE_SECONDS: Final = 0.1
TROUBLE_SECONDS_MAX: Final = 10.0
# A beat that failed is tried again within this: sooner than two sweeps take.
BEAT_RETRY_SECONDS_MAX: Final = 1.5
# A worker says that it is there so often; one that was silent for so long is taken for dead; and
# forgotten after so long.
ANNOUNCE_SECONDS: Final = 10.0
WORKER_SILENT_SECONDS: Final = 60.0
WORKER_FORGOTTEN_SECONDS: Final = 600.0
# A child that dies before it finished anything is replaced after a pause between these.
RESPAWN_SECONDS: Final = 0.1
RESPAWN_SECONDS_MAX: Final = 30.0
# After a child's death its leases are given back again: a claim may still have been on its way.
GIVE_BACK_AGAIN_SECONDS: Final = (1.0, 3.0)
# How long past its time limit a run may take to stop by itself before its process is ended.
TIMEOUT_GRACE_SECONDS: Final = 2.0
# How long cancelled coroutines get to clean up when a worker ends.
STOP_SECONDS: Final = 2.0
# Process slots. The app must be loaded within this time; a slot without work is ended after so
# long; and no message between a slot and its worker is larger: a mistake must not fill the memory.
SLOT_START_SECONDS: Final = 60.0
SLOT_IDLE_SECONDS: Final = 60.0
SLOT_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
# A slot's last words are waited for so long after its death.
SLOT_LAST_WORDS_SECONDS: Final = 0.5
# `--reload` looks so often, at so many files at most: a look takes a tenth of a second then.
RELOAD_SECONDS: Final = 1.0
RELOAD_FILES_MAX: Final = 10_000

# The server. A body of one job: a payload of the largest size, every character of it escaped.
HTTP_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
HTTP_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
# Jobs, leases or settlements of one request.
HTTP_BATCH_MAX: Final = 10_000
# What real clients send is a tenth of this; a parser must not be fed for ever.
HTTP_HEADER_BYTES_MAX: Final = 64 * 1024
# A request whose head or body takes longer is given up: a slow one holds a connection.
HTTP_HEADER_SECONDS: Final = 10.0
HTTP_BODY_SECONDS: Final = 30.0
# Of a request that is refused before its body was read, so much is read and thrown away.
HTTP_DRAIN_BYTES_MAX: Final = 256 * 1024
HTTP_DRAIN_SECONDS: Final = 1.0
# So many requests are worked on at once, those that wait for jobs among them; beyond, come again.
HTTP_REQUESTS_MAX: Final = 1_000
HTTP_RETRY_SECONDS: Final = 2
# While the database is away, the log says so once in so long a time.
HTTP_COMPLAINT_SECONDS: Final = 10.0
# Proxies cut connections that are silent for a minute.
HTTP_WAIT_SECONDS_MAX: Final = 55.0
# Longer than clients and proxies keep an idle connection, so that they are the ones to close it.
HTTP_KEEP_ALIVE_SECONDS: Final = 75
# After a signal, requests may go on for so long.
HTTP_STOP_SECONDS: Final = 25.0
# So many calls wait for jobs at once; beyond, they are answered with none at once.
HTTP_WAITERS_MAX: Final = 500
# A ring of the bell wakes so many of them, and at most this often.
HTTP_RING_WAKES: Final = 4
HTTP_RING_SECONDS: Final = 0.02
# Jobs of one lease call, with their payloads.
HTTP_LEASE_LIMIT_MAX: Final = 500
HTTP_LEASE_SECONDS_MAX: Final = DAY_SECONDS
# Workers that were announced on their behalf are remembered, up to so many.
HTTP_WORKERS_NOTED_MAX: Final = 10_000
# Full jobs are large: a page of them over HTTP is smaller than in the library.
HTTP_LIST_LIMIT_MAX: Final = 200
# How long a probe waits for the database, and how long its answer counts for others.
HTTP_READY_SECONDS: Final = 5.0
HTTP_READY_KNOWN_SECONDS: Final = 1.0
# Jobs of requests that come together share a transaction: so many, of so many bytes.
HTTP_GATHER_JOBS: Final = 500
HTTP_GATHER_BYTES: Final = 4 * 1024 * 1024
# A token that was good is not looked up again for so long; so long a revoked one may still work
# on other servers.
TOKEN_KNOWN_SECONDS: Final = 1.0
TOKENS_KNOWN_MAX: Final = 10_000
# Bad tokens from one address, in so long a time; then they are refused without a look.
AUTH_FAILURES_MAX: Final = 20
AUTH_FAILURES_SECONDS: Final = 60.0
AUTH_ADDRESSES_MAX: Final = 10_000
# Who did what is asked for weeks later, seldom after a quarter of a year.
AUDIT_KEEP_SECONDS: Final = 90 * DAY_SECONDS
AUDIT_TARGET_BYTES_MAX: Final = 800
# A step of work on many jobs reads so many rows, however few of them fit.
BULK_SCAN_ROWS: Final = 5_000
# A server looks so often for work that another one has left.
BULK_LOOK_SECONDS: Final = 30.0
# Jobs that could not be worked on are named, up to so many.
BULK_SKIPPED_MAX: Final = 1_000
BULK_KEEP_SECONDS: Final = 30 * DAY_SECONDS

# History. Pairs of queue and kind that one process, or one slot of time, tells apart.
TALLY_NAMES_MAX: Final = 200
# Of a batch of so many runs all are timed; of a larger one every second, third and so on.
TALLY_TIMED_MAX: Final = 64
# A process writes its sums so often; a killed one loses those of so long.
HISTORY_WRITE_SECONDS: Final = 10.0
HISTORY_KEEP_SECONDS: Final = 7 * DAY_SECONDS
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
# A row tells of so many things one by one, and of so many more by their numbers.
EVENTS_SINGLE_MAX: Final = 25
# So many rows are read at once. Rows that are committed late are looked for among the last ones.
EVENTS_ROWS_MAX: Final = 500
EVENTS_OVERLAP_ROWS: Final = 100
# New jobs are looked for among those made in the last seconds, so many of them.
EVENTS_NEW_SECONDS: Final = 3.0
EVENTS_NEW_MAX: Final = 200
# A listener that reads slowly loses the oldest of so many; and so many may listen at once.
EVENTS_BUFFER_MAX: Final = 1_000
HTTP_LISTENERS_MAX: Final = 200
# Without news, a word so often, so that proxies do not take the line for dead.
HTTP_STREAM_BEAT_SECONDS: Final = 15.0

# Metrics. A child shows its counts so often, in so many bytes: two hundred names, twice.
BOARD_SECONDS: Final = 1.0
BOARD_BYTES: Final = 1024 * 1024
# A child that could not claim for so long is not ready: longer than a claim may take when all is
# well, shorter than a call to a database that is silent.
READY_SECONDS: Final = 15.0
# The gauges of queues come from one look, which serves all who ask for so long.
METRICS_KNOWN_SECONDS: Final = 10.0

# Dead jobs are told apart by what they died of, so many groups at most.
DEAD_GROUPS_MAX: Final = 500

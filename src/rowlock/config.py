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
# Recovery, retention and bulk work commit after so many rows.
MAINTENANCE_BATCH_ROWS: Final = 500
LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1_000
# A page never reads more rows than this, however rare a match is; it returns a cursor to go on.
LIST_SCAN_ROWS_MAX: Final = 50_000
COUNT_EXACT_MAX: Final = 10_000

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
POSTGRES_CONNECT_SECONDS: Final = 10
# A lost race (serialization, deadlock) or a lost connection is tried again so often.
STORE_TRIES_MAX: Final = 5
STORE_RETRY_SECONDS: Final = 0.02
# The doorbell rings at most once in so long a time per queue and process.
BELL_SECONDS: Final = 0.005
BELL_QUEUE_BYTES_MAX: Final = 200

# A run's progress is written at most twice a second.
PROGRESS_SECONDS: Final = 0.5
# What a drain leases at a time; each job is settled as soon as it ended.
DRAIN_BATCH: Final = 20
# app.wait() looks again after so long, at first and at last.
WAIT_SECONDS: Final = 0.02
WAIT_SECONDS_MAX: Final = 0.5

"""A SQLite file that can hold a queue: where it is, how it is opened, and who may write now.

1. Writers take a lock file first, then BEGIN IMMEDIATE. So our own processes queue up without
   SQLite's coarse busy sleeps, and a checkpoint can know that none of them writes. (Eight processes
   with one row per transaction: 5,700 writes/s, and a longest wait of 0.15 s. BEGIN IMMEDIATE with
   a busy timeout alone gave 6,600, but some waited for 2.3 s: that is the price. A lock that blocks
   in the kernel was no faster, and has no bound: a stopped process hangs all.)
2. Libraries before 3.51.3 may corrupt the file when a checkpoint runs beside a writer that restarts
   the log. So the automatic checkpoint is off, and the log is folded by a writer of ours that holds
   the lock file, before it has the 1,000 frames at which connections of other programs would begin
   to checkpoint by themselves, beside us. We can't prevent checkpoints that they run on purpose.
   Threads that serve async callers do it sooner, while they are idle: a writer that folds the log
   makes its caller wait for it, and the worker that wants the job.
3. The log is restarted in place (RESTART), not cut (TRUNCATE): a sync of a file that does not grow
   is cheaper (7,600 against 5,300 transactions/s).
4. A commit opens and closes the lock file: watchers of the directory then know that it can be
   read.
5. We never hold the database file open ourselves while SQLite has it open too: closing such a
   descriptor would drop all of SQLite's locks in this process. (`-wal` has no locks on it.)
6. A connection never crosses a fork.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.errors import RowlockError, StoreRefused, StoreUnavailable, UnsupportedStore

Version = tuple[int, int, int]

VERSION_MIN: Version = (3, 35, 0)
# fmt: off
_NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.cephfs", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb2",
    "smb3", "smbfs", "vboxsf", "vmhgfs",
})
# fmt: on

# Held while a file is created, and while the connection of an ended thread is closed: a fork waits
# for either. Creation is the one time that we open the file ourselves, so no other thread may
# connect before it is closed again.
fork_gate: threading.RLock = threading.RLock()
os.register_at_fork(
    before=fork_gate.acquire,
    after_in_parent=fork_gate.release,
    after_in_child=fork_gate.release,
)


def path_of(url: str) -> Path:
    """The file of a `sqlite:///…` URL: three slashes for a relative path, four for an absolute."""
    rest = url.removeprefix("sqlite://")
    path, mark, _ = rest.removeprefix("/").partition("?")
    if mark:
        raise UnsupportedStore(f"{url!r} has options after a ?, but SQLite's URLs take none")
    if not rest.startswith("/") or path in ("", ":memory:"):
        raise UnsupportedStore(
            f"{url!r} names no file: write sqlite:///jobs.db (relative) or sqlite:////srv/jobs.db; "
            "a database in memory can't be shared by threads and processes"
        )
    return Path(path)


def check_version(version: Version = sqlite3.sqlite_version_info) -> None:
    """Refuse a library without RETURNING."""
    if version < VERSION_MIN:
        have, need = (".".join(map(str, numbers)) for numbers in (version, VERSION_MIN))
        raise UnsupportedStore(f"SQLite {have} is too old, {need} or later is needed")


def check_file_system(path: Path, mounts: str | None = None) -> None:
    """Refuse a network file system, whose locks can't be trusted. Checked on Linux only."""
    kind = _file_system_of(path.resolve().parent, _mounts() if mounts is None else mounts)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise UnsupportedStore(
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold: "
            "use a local disk, or PostgreSQL for many machines"
        )


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _file_system_of(directory: Path, mounts: str) -> str | None:
    """The type of the deepest mount over a directory. Of two on one point, the later counts."""
    kind, depth = None, 0
    for line in mounts.splitlines():
        _, point, kind_here, *_ = [*line.split(" "), "", "", ""]
        mount = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point))
        if len(mount.parts) >= depth and directory.is_relative_to(mount):
            kind, depth = kind_here, len(mount.parts)
    return kind


class SqliteFile:
    """One database file as this process knows it. `busy_seconds` bounds every wait for others."""

    def __init__(
        self,
        path: Path,
        *,
        version: Version = sqlite3.sqlite_version_info,
        busy_seconds: float = config.SQLITE_BUSY_SECONDS,
    ) -> None:
        check_version(version)
        if not path.parent.is_dir():
            raise UnsupportedStore(f"the directory of {path} does not exist: create it first")
        check_file_system(path)
        # Resolved now: the process may change its directory later.
        self.path: Path = path.resolve()
        self.wal_path: Path = Path(f"{self.path}-wal")
        self.lock_path: Path = Path(f"{self.path}-rowlock")
        self.busy_seconds = busy_seconds

    def create(self) -> None:
        """Create the file if it is missing, for its owner only. SQLite's own files follow it."""
        with fork_gate:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                return
            except OSError as error:
                raise StoreUnavailable(f"{self.path} can't be created: {error.strerror}") from error

    def connect(self, turn: WriteLock) -> sqlite3.Connection:
        """A new connection with our settings. `turn` is taken where setting them needs a write."""
        try:
            connection = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode=rw",
                uri=True,
                # Set before any other statement.
                timeout=self.busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise self.mapped(error) from error
        try:
            self._settle_in(connection, turn)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise self.mapped(error) from error
            raise
        return connection

    def _settle_in(self, connection: sqlite3.Connection, turn: WriteLock) -> None:
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            with turn:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise UnsupportedStore(f"{self.path} can't have a write-ahead log, only {mode!r}")
        # FULL: an acknowledged job survives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # Space that a long reader made the log take is given back, without cutting it every time.
        connection.execute(f"PRAGMA journal_size_limit = {config.SQLITE_WAL_BYTES_KEPT}")

    def identity(self) -> tuple[int, int] | None:
        """The identity of the file that is at the path now."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def mapped(self, error: sqlite3.Error) -> RowlockError:
        """Our error for a driver's. The one place where they are mapped."""
        code = getattr(error, "sqlite_errorname", None) or ""
        if code.startswith("SQLITE_NOTADB"):
            return UnsupportedStore(f"{self.path} is not a SQLite database (or is encrypted)")
        if code.startswith(_REFUSALS) and not str(error).startswith(_MISSING):
            reason = str(error)[: config.LOGGED_ERROR_CHARACTERS_MAX]
            return StoreRefused(str(self.path), reason)
        hint = next((text for start, text in _HINTS.items() if code.startswith(start)), "")
        if code.startswith("SQLITE_BUSY"):
            hint = f"for {self.busy_seconds:g} s; {hint}"
        return StoreUnavailable(f"{self.path}: {error}{hint and f' ({hint})'}")


# The row, or a trigger of the user's, is at fault. All other errors are about the file, the disk or
# other processes, and may be gone at the next try. A missing table may come back.
_REFUSALS = (
    "SQLITE_CONSTRAINT",
    "SQLITE_ERROR",
    "SQLITE_MISMATCH",
    "SQLITE_RANGE",
    "SQLITE_TOOBIG",
)
_MISSING = ("no such table", "no such column")
_HINTS = {
    "SQLITE_BUSY": (
        "if your own transaction holds it, commit it first, or enqueue on that connection with "
        "using(conn=...)"
    ),
    "SQLITE_FULL": "nothing of this call was written; free some space, then try again",
    "SQLITE_IOERR": "look at the disk, at its free space, and at limits such as ulimit -f",
    "SQLITE_READONLY": "this user must be able to write to the file and to its directory",
    "SQLITE_CANTOPEN": (
        "it was deleted, or this user may not write to it and to its directory, where "
        "SQLite keeps its log"
    ),
    "SQLITE_PERM": "this user must be able to write to the file and to its directory",
    "SQLITE_CORRUPT": "the file is damaged: stop every process that uses it, restore a backup",
}


class LogGauge:
    """Measures how long the write-ahead log is, which its file's size does not show.

    The log is overwritten in place, and each of its frames carries the salt of the header under
    which it was written. So it has `n` frames if the n-th carries the current salt.
    """

    __slots__ = ("_descriptor", "_found", "_frames", "_tried_at", "_tried_salt")

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self._descriptor: int | None = None
        self._found = self._tried_at = 0
        self._tried_salt = b""

    def is_long(self, path: Path) -> bool:
        """Whether the log has grown by another `frames` since it was last tried to fold it."""
        if self._descriptor is None:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        header = os.pread(self._descriptor, 32, 0)
        salt = header[16:24]
        if salt != self._tried_salt:
            self._tried_at, self._tried_salt = 0, salt
        self._found = self._tried_at + self._frames
        page_bytes = int.from_bytes(header[8:12], "big")
        offset = 32 + (self._found - 1) * (24 + page_bytes)
        return bool(salt) and os.pread(self._descriptor, 8, offset + 8) == salt

    def note_try(self) -> None:
        """The log that was found long is folded now. A reader may keep it from being restarted."""
        self._tried_at = self._found

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class WriteLock:
    """The lock file as a context manager: one writer of ours at a time, with a bounded wait.

    It belongs to one thread, which may take it again while it holds it.
    """

    __slots__ = ("_depth", "_descriptor", "_file")

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._depth = 0

    def __enter__(self) -> WriteLock:
        if self._depth == 0:
            self._wait()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    async def atake(self) -> None:
        """As entering it, for a coroutine."""
        if self._depth == 0:
            for pause in self._pauses():
                await asyncio.sleep(pause)
        self._depth += 1

    def release(self) -> None:
        """Release it, however often it was taken. Can be called from any thread."""
        self._depth = 0
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def report_commit(self) -> None:
        """Wake those who watch the lock file: its closing is an event for them.

        That writes nothing. To set its time made an enqueue take 12 to 20 % longer, since the next
        sync had to write the inode as well.
        """
        # Without a free descriptor nobody is woken, and workers find the job when they poll.
        with suppress(OSError):
            os.close(os.open(self._file.lock_path, os.O_RDONLY | os.O_CLOEXEC))

    def _wait(self) -> None:
        for pause in self._pauses():
            threading.Event().wait(pause)

    def _pauses(self) -> Iterator[float]:
        """How long to wait before each next try. Ends when it is taken."""
        deadline = 0.0
        while not self._try():
            now = time.monotonic()
            deadline = deadline or now + self._file.busy_seconds
            if now > deadline:
                raise StoreUnavailable(
                    f"could not get the write lock of {self._file.path} within "
                    f"{self._file.busy_seconds:g} s: a process of this queue holds it, and is "
                    "stopped, hangs, or itself waits for a transaction of yours"
                )
            yield writer_pause()

    def _try(self) -> bool:
        try:
            if self._descriptor is None or os.fstat(self._descriptor).st_nlink == 0:
                self.close()
                self._descriptor = _open_lock(self._file)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StoreUnavailable(
                f"{self._file.lock_path} can't be locked: {error.strerror}; "
                "this user must be able to write to it, or to its directory"
            ) from error
        return True

    def close(self) -> None:
        """Close the lock file. In a forked child this leaves the parent's lock as it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def pause_as_writer() -> None:
    """Let another writer take its turn."""
    threading.Event().wait(writer_pause())


def writer_pause() -> float:
    """How long a writer waits before it tries again."""
    # The same for all, however long they have waited: with growing pauses the newest come first.
    return config.SQLITE_LOCK_PAUSE_SECONDS * CHANCE.uniform(0.5, 1.5)


def _open_lock(file: SqliteFile) -> int:
    """Open the lock file. A new one gets the database's mode and owner, like SQLite's own files.

    So every user who may write to the database can take the lock, and no one else can hold it up.
    """
    database = file.path.stat()
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(file.lock_path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(file.lock_path, flags)
    if os.geteuid() == 0:
        os.fchown(descriptor, database.st_uid, database.st_gid)
    os.fchmod(descriptor, database.st_mode & 0o666)
    return descriptor

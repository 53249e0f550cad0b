"""The SQLite file itself: where it may lie, who may read it, what is said when it can't be used."""

from __future__ import annotations

import ast
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rowlock.errors import StoreUnavailable, UnsupportedStore
from rowlock.store import open_store
from rowlock.store.sqlite.file import (
    SqliteFile,
    WriteLock,
    check_file_system,
    check_version,
    path_of,
)
from tests.house.source import read_modules
from tests.store.sqlite_processes import count_jobs, impatient_store, is_sound, job, url_of

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def own_directory() -> Iterator[Path]:
    """A directory that another user can reach, and is the owner of."""
    directory = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
    yield directory
    directory.chmod(0o700)
    shutil.rmtree(directory)


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Not as root, whom no permission stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


MOUNTS = r"""sysfs /sys sysfs rw 0 0
/dev/sda1 / ext4 rw 0 0
overlay /var/lib/box overlay rw,lowerdir=/a 0 0
server:/jobs /mnt/nfs nfs4 rw 0 0
/dev/sdb1 /mnt/nfs/local ext4 rw 0 0
//server/share /mnt/with\040space\134and cifs rw 0 0
server:/jobs /srv/bound nfs rw 0 0
/dev/sdc1 /covered ext4 rw 0 0
me@host: /covered fuse.sshfs rw 0 0
me@host: /uncovered fuse.sshfs rw 0 0
/dev/sdc1 /uncovered xfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/jobs.db", None),
        ("/mnt/jobs.db", None),
        ("/mnt/nfs2/jobs.db", None),
        ("/var/lib/box/jobs.db", None),
        ("/mnt/nfs/jobs.db", "nfs4"),
        ("/mnt/nfs/deep/jobs.db", "nfs4"),
        ("/mnt/nfs/local/jobs.db", None),
        ("/mnt/with space\\and/jobs.db", "cifs"),
        ("/srv/bound/jobs.db", "nfs"),
        ("/covered/jobs.db", "fuse.sshfs"),
        ("/uncovered/jobs.db", None),
    ],
)
def test_a_network_file_system_is_refused(path, kind):
    """The deepest mount above the file decides, the later one of two on the same point."""
    if kind is None:
        check_file_system(Path(path), MOUNTS)
        return
    with pytest.raises(UnsupportedStore, match=rf"network file system \({kind}\)"):
        check_file_system(Path(path), MOUNTS)


def test_without_a_list_of_mounts_a_file_is_trusted():
    """Where the system tells no mounts, nothing is refused."""
    check_file_system(Path("/jobs.db"), "")


def test_an_old_library_is_refused(path):
    """A version without RETURNING can't hold a queue; the first with it can."""
    check_version((3, 35, 0))
    with pytest.raises(UnsupportedStore, match=r"SQLite 3\.34\.1 is too old, 3\.35\.0"):
        check_version((3, 34, 1))
    with pytest.raises(UnsupportedStore):
        SqliteFile(path, version=(3, 34, 1))


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://x.db"])
def test_a_url_without_a_file_is_refused(url):
    """A queue in memory could not be shared, and a host has no file."""
    with pytest.raises(UnsupportedStore, match="names no file"):
        path_of(url)


def test_options_in_a_url_are_refused():
    """There are none: a `mode=ro` that is not heeded would be worse."""
    with pytest.raises(UnsupportedStore, match="options after a"):
        path_of("sqlite:///jobs.db?mode=ro")


def test_only_the_owner_can_read_the_files(path):
    """Database, log, shared memory and lock file are private, whatever the umask."""
    before = os.umask(0)
    try:
        with closing(open_store(url_of(path))) as store:
            store.enqueue([job()])
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)

    names = ["jobs.db", "jobs.db-rowlock", "jobs.db-shm", "jobs.db-wal"]
    assert dict.fromkeys(names, 0o600) == modes


def test_the_lock_file_can_be_used_by_all_who_write(path):
    """A database shared with a group has a lock file shared with that group."""
    path.touch()
    path.chmod(0o660)
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])

    assert stat.S_IMODE(Path(f"{path}-rowlock").stat().st_mode) == 0o660


def test_odd_characters_in_the_path(tmp_path):
    """A name that would mean something in a URI is only a name."""
    path = tmp_path / "100% [odd] #1 ü&x=y.db"
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])

    assert path.exists()
    assert count_jobs(path) == 1


def test_a_missing_directory_is_refused(tmp_path):
    """Directories are not made up."""
    with pytest.raises(UnsupportedStore, match="create it first"):
        open_store(url_of(tmp_path / "nowhere" / "jobs.db"))


def test_a_file_of_another_kind_is_refused(path):
    """What is not a database is left alone."""
    path.write_text("not a database, but long enough to be taken for one\n" * 100)
    with (
        closing(open_store(url_of(path))) as store,
        pytest.raises(UnsupportedStore, match="is not"),
    ):
        store.enqueue([job()])

    assert path.read_text().startswith("not a database")


def test_a_directory_that_was_deleted(tmp_path):
    """The error says that nothing can be created there."""
    directory = tmp_path / "gone"
    directory.mkdir()
    store = open_store(url_of(directory / "jobs.db"))
    directory.rmdir()

    with pytest.raises(StoreUnavailable, match="can't be created: No such file"):
        store.enqueue([job()])


def test_a_file_deleted_under_a_connection(path):
    """A job is not acknowledged into a file that nobody can see any more."""
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        for each in list(path.parent.iterdir()):
            each.unlink()
        with pytest.raises(StoreUnavailable, match="was deleted or replaced"):
            store.enqueue([job()])
        with pytest.raises(StoreUnavailable, match="it was deleted"):
            store.enqueue([job()])


def test_a_file_replaced_under_a_connection(path, tmp_path):
    """After a restored backup one call fails, and the next writes to the restored file."""
    backup = tmp_path / "backup.db"
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        Path(f"{path}-wal").unlink()
        backup.replace(path)
        with pytest.raises(StoreUnavailable, match="was deleted or replaced"):
            store.enqueue([job()])
        store.enqueue([job()])

    assert count_jobs(path) == 2


def test_a_directory_that_may_not_be_written(own_directory, as_nobody):
    """The error names what is missing."""
    own_directory.chmod(0o500)
    store = open_store(url_of(own_directory / "jobs.db"))

    with pytest.raises(StoreUnavailable, match="can't be created: Permission denied"):
        store.enqueue([job()])


@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_file_that_may_not_be_written(own_directory, as_nobody, mode):
    """Reading alone is not enough, and the error says so."""
    path = own_directory / "jobs.db"
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
    path.chmod(mode)

    with closing(open_store(url_of(path))) as store, pytest.raises(StoreUnavailable, match="user"):
        store.enqueue([job()])


def test_a_transaction_of_somebody_else_is_named(path):
    """Who waits in vain is told for how long, and what to do."""
    with closing(impatient_store(path)) as store:
        store.enqueue([job()])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match=r"0\.2 s; .*using\(conn=\.\.\.\)"):
                store.enqueue([job()])
        store.enqueue([job()])

    assert count_jobs(path) == 2


def test_a_turn_that_does_not_come(path):
    """A stopped process of ours does not hang the others for ever."""
    with closing(impatient_store(path)) as store:
        store.enqueue([job()])
        with (
            WriteLock(SqliteFile(path)),
            pytest.raises(StoreUnavailable, match="the write lock of"),
        ):
            store.enqueue([job()])
        store.enqueue([job()])

    assert count_jobs(path) == 2


def test_a_lock_file_that_was_deleted(path):
    """A new lock file is made, and taken, by everyone."""
    lock = Path(f"{path}-rowlock")
    with closing(impatient_store(path)) as store:
        store.enqueue([job()])
        lock.unlink()
        store.enqueue([job()])
        with (
            WriteLock(SqliteFile(path)),
            pytest.raises(StoreUnavailable, match="the write lock of"),
        ):
            store.enqueue([job()])


def test_an_up_to_date_file_is_opened_without_the_lock(path):
    """To open a migrated file and to read from it needs no turn to write."""
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
    with closing(impatient_store(path)) as store, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with WriteLock(SqliteFile(path)):
            assert store.migrate() == []
            assert len(store.stats()) == 1


def test_a_full_disk(path):
    """Nothing is acknowledged or half-written for want of space; with space it goes on."""
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        session = store.engine._session()
        with session.transaction(writes=False):
            pages = session.connection.execute("PRAGMA page_count").fetchone()[0]
            session.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match=r"full .*free some space"):
            store.enqueue([job() for _ in range(2_000)])
        assert count_jobs(path) == 1
        with session.transaction(writes=False):
            session.connection.execute("PRAGMA max_page_count = 1000000")
        store.enqueue([job()])

    assert count_jobs(path) == 2
    assert is_sound(path)


def test_we_never_open_the_database_file():
    """Only its creation, and files that SQLite puts no locks on, are opened by ourselves."""
    opened = [
        f"{module.name}: {ast.unparse(node.args[0])}"
        for module in read_modules()
        if module.name.startswith("rowlock.store.sqlite.")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2]
        in {"open", "read_bytes", "write_bytes", "write_text", "touch", "copyfile"}
    ]

    name = "rowlock.store.sqlite.file"
    assert sorted(opened) == [
        f"{name}: file.lock_path",
        f"{name}: file.lock_path",
        f"{name}: path",
        f"{name}: self._file.lock_path",
        f"{name}: self.path",
    ]

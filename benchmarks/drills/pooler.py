"""PgBouncer in transaction mode, the oldest kind that is still met: no prepared statements."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.drills.misbehaviour import Poisoned, poison
from benchmarks.drills.scene import Scene, until
from rowlock.store.postgres.pooler import Pooler, find_pooler
from rowlock.store.url import PostgresUrl
from rowlock.testing import ThrowAwayPostgres
from rowlock.testing.postgres import find_free_port

# Debian's directory for daemons is in nobody's PATH.
DIRECTORIES = (os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin")
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server.port} user={server.username} password={server.password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
max_client_conn = 200
default_pool_size = 8
server_idle_timeout = 5
"""


class PoolerNotInstalled(RuntimeError):
    """There is no PgBouncer on this machine."""


def pooled(server: ThrowAwayPostgres, place: Path, *, jobs: int) -> Poisoned:
    """Everything goes by way of the pooler: schema, producers, workers, and a poison."""
    with pgbouncer(server.url) as url, Scene(url, place) as scene:
        found = find_pooler(PostgresUrl.parse(url))
        assert found is Pooler.TRANSACTION, f"it should pool transactions, and does {found}"
        return poison(scene, bystanders=jobs, deaths=1)


def find_pgbouncer() -> str:
    """The path of the program.

    Raises:
        PoolerNotInstalled: It is not on this machine.
    """
    program = shutil.which("pgbouncer", path=os.pathsep.join(DIRECTORIES))
    if program is None:
        raise PoolerNotInstalled("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    return program


@contextmanager
def pgbouncer(server_url: str) -> Iterator[str]:
    """The URL of a pooler before a server on this machine, for the same user and password.

    Raises:
        PoolerNotInstalled: It is not on this machine.
    """
    program = find_pgbouncer()
    port = find_free_port()
    # It refuses to be root, as PostgreSQL does.
    nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        server = urlsplit(server_url)
        settings, users = place / "pgbouncer.ini", place / "users"
        settings.write_text(SETTINGS.format(server=server, port=port, users=users))
        users.write_text(f'"{server.username}" "{server.password}"\n')
        if nobody is not None:
            os.chown(place, nobody.pw_uid, nobody.pw_gid)
        with (place / "log").open("w") as log:
            process = subprocess.Popen(
                [program, str(settings)],
                user=None if nobody is None else nobody.pw_uid,
                group=None if nobody is None else nobody.pw_gid,
                extra_groups=None if nobody is None else [],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: _answers(port) or process.poll() is not None)
            assert process.poll() is None, (place / "log").read_text()
            user, _, _ = server.netloc.rpartition("@")
            yield server._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        finally:
            process.terminate()
            process.wait()


def _answers(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

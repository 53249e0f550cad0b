"""Processes of the examples: servers that listen on a socket of the test's, and workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


def environment_of(url: str, **more: str) -> dict[str, str]:
    """This one's, with no settings of rowlock but the database."""
    clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
    return {
        **clean,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "ROWLOCK_DATABASE_URL": url,
        **more,
    }


@contextmanager
def running(
    words: Sequence[str], *, cwd: Path, env: dict[str, str], pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A process that ends politely, and soon, when the block ends."""
    started = subprocess.Popen([sys.executable, *words], cwd=cwd, env=env, pass_fds=pass_fds)
    try:
        yield started
        assert started.poll() is None, "it has ended by itself"
        started.send_signal(signal.SIGTERM)
        assert started.wait(30) in (0, -signal.SIGTERM)
    finally:
        started.kill()
        started.wait()


@contextmanager
def serving(words: Sequence[str], *, cwd: Path, env: dict[str, str]) -> Iterator[httpx.Client]:
    """A server process on a socket that listens already: the first request waits for its start.

    The word `FD` stands for the socket's number.
    """
    with socket.create_server(("127.0.0.1", 0)) as sock:
        number = sock.fileno()
        given = [word.replace("FD", str(number)) for word in words]
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
        # The client last: what it has open when the server is told to end must not hold that.
        with (
            httpx.Client(base_url=address, timeout=60, trust_env=False) as client,
            running(given, cwd=cwd, env=env, pass_fds=[number]),
        ):
            yield client

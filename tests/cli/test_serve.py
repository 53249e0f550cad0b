"""`rowlock serve`: says where it is, serves, and ends politely."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import httpx
import pytest

import rowlock
from rowlock import config
from rowlock.server.serve import HttpServer
from rowlock.worker import signals

Start = Callable[..., subprocess.Popen[str]]
pytestmark = pytest.mark.one_store("a process that serves; tests/server asks it on both")


@pytest.fixture
def start(any_url: str) -> Iterator[Start]:
    """Start `rowlock serve` on the database of the test."""
    started: list[subprocess.Popen[str]] = []
    clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rowlock.cli", "--database-url", any_url, "serve", *words]
        process = subprocess.Popen(
            command, text=True, env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    found = re.search(r"http://[^/]+", process.stdout.readline())
    assert found is not None
    return found[0]


def test_it_serves_until_it_is_told_to_stop(start):
    """It says where, and that it is open; SIGTERM ends it with exit code 0."""
    process = start("--port", "0", "--open")
    address = address_of(process)
    told = process.stdout.readline()
    made = httpx.post(f"{address}/v1/jobs", json={"kind": "x"}, trust_env=False)
    ready = httpx.get(f"{address}/readyz", trust_env=False)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)

    assert "everyone on this machine has access" in told
    assert (made.status_code, ready.status_code) == (201, 200)
    assert process.returncode == 0, errors
    assert "stopping: SIGTERM" in errors


def test_without_a_token_it_prints_a_login_link(start):
    """At the terminal only, with the code where no server sees it. It is exchanged for a cookie."""
    process = start("--port", "0", "--trusted-proxy", "10.0.0.1,10.1.0.0/16")
    address = address_of(process)
    link = re.search(r"(http://\S+)/#login=(\S+)", process.stdout.readline())
    closed = httpx.get(f"{address}/v1/jobs", trust_env=False)
    with httpx.Client(base_url=address, trust_env=False) as browser:
        entered = browser.post("/v1/session", json={"token": link[2]})
        jobs = browser.get("/v1/jobs")
    process.send_signal(signal.SIGTERM)
    written, errors = process.communicate(timeout=30)

    assert link[1] == address
    assert (closed.status_code, entered.status_code, jobs.status_code) == (401, 201, 200)
    assert link[2] not in written + errors


def test_no_login_link_is_logged(start):
    """With JSON lines, which are kept, it only says how to make a token."""
    process = start("--port", "0", "--log-format", "json")
    line = next(line for line in process.stderr if "no valid token exists" in line)
    process.send_signal(signal.SIGTERM)
    written, errors = process.communicate(timeout=30)

    assert "rowlock tokens create" in line
    assert "login=" not in line + written + errors


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--host", "0.0.0.0", "--open"), "--open needs no token"),
        (("--trusted-proxy", "nginx"), "give an address such as 10.0.0.5"),
    ],
)
def test_options_that_can_not_be(start, words, problem):
    """Are errors that say what to do."""
    process = start("--port", "0", *words)
    written, errors = process.communicate(timeout=30)

    assert (process.returncode, written) == (4, "")
    assert problem in errors


def test_beyond_loopback_it_needs_a_token(start):
    """Otherwise it says what to do, and ends."""
    process = start("--host", "0.0.0.0", "--port", "0")
    written, errors = process.communicate(timeout=30)

    assert (process.returncode, written) == (4, "")
    assert "rowlock tokens create" in errors


def test_an_address_that_is_taken(start):
    """Is an error of one line."""
    port = address_of(start("--port", "0")).rpartition(":")[2]
    second = start("--port", port)
    _, errors = second.communicate(timeout=30)

    assert second.returncode == 4
    assert len(errors.splitlines()) == 1
    assert (
        f"another program listens on 127.0.0.1:{port}; choose another port, such as --port"
        in errors
    )


def test_without_a_dashboard(start):
    """There is the API and nothing else."""
    address = address_of(start("--port", "0", "--no-dashboard"))
    home = httpx.get(f"{address}/", trust_env=False)

    assert (home.status_code, home.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize("command", ["serve", "up"])
def test_without_the_extra(command, tmp_path):
    """It says what to install; `up` runs the rest."""
    (tmp_path / "starlette.py").write_text(
        "raise ModuleNotFoundError('hidden', name='starlette')\n", "utf-8"
    )
    (tmp_path / "tiny.py").write_text(
        "import rowlock\napp = rowlock.App('sqlite:///tiny.db')\n", "utf-8"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rowlock.cli", "--app", "tiny:app", command],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if "rowlock[server]" in line)
        process.terminate()
        process.stdout.read()

    assert "needs starlette" in told


def test_two_signals_within_a_moment_are_one(sqlite_url, monkeypatch):
    """Requests have their time to end in, though `timeout` sends two; a later one ends it."""
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with rowlock.App(sqlite_url) as app:
        app.migrate()
        listening = HttpServer(app, host="127.0.0.1", port=0)
        listening._socket.close()
        server = listening._server
        told = []
        for pause in (0.0, 0.1, config.SECOND_SIGNAL_SECONDS):
            now[0] += pause
            server.handle_exit(signal.SIGTERM, None)
            told.append((server.should_exit, server.force_exit))

    assert told == [(True, False), (True, False), (True, True)]

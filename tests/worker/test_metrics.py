"""`rowlock worker --metrics-port`: the supervisor answers for its children, living and dead."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest

from rowlock import config
from rowlock.worker.shared_memory import SharedCounts, Totals
from tests.support.metrics import Asking
from tests.support.workers import children_of, leaving_child, runners, worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("a port of the worker")


def test_a_worker_tells_of_itself(app, port, tmp_path):
    """Runs of all children, slots, and those of a child that was killed and replaced."""
    asking = Asking(port)
    with worker(app, "-p", "2", "-c", "5", "--metrics-port", str(port)) as process:
        wait_until(lambda: asking.status("/readyz") == 200, seconds=60)
        assert asking.status("/healthz") == 200 and asking.status("/nothing") == 404
        wait_until(lambda: asking.number_or_none("rowlock_leases_lost_total", queue="default") == 0)
        app.enqueue_many([{"kind": "noop", "payload": {"number": n}} for n in range(100)])
        wait_until(lambda: asking.finished("noop", "succeeded") == 100)
        note = tmp_path / "note"
        app.enqueue("wait_for_file", {"path": str(tmp_path / "go-on"), "note": str(note)})
        (pid,) = wait_until(lambda: runners(note))
        wait_until(lambda: asking.number("rowlock_worker_slots", state="busy") == 1)
        assert asking.number("rowlock_worker_slots", state="free") == 9
        assert pid in children_of(process)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(runners(note)) == 2)
        (tmp_path / "go-on").touch()
        wait_until(lambda: asking.finished("wait_for_file", "succeeded") == 1)

        assert asking.finished("wait_for_file", "retrying") == 1
        assert asking.finished("noop", "succeeded") == 100
        labels = {"queue": "default", "kind": "noop"}
        assert asking.number("rowlock_job_duration_seconds_count", **labels) == 100


def test_the_port_is_open_to_others_only_when_asked_for(app, port):
    """A kubelet comes to another address than 127.0.0.1, and so does 127.0.0.2 here."""
    with worker(app, "--metrics-port", str(port)):
        wait_until(lambda: Asking(port).status("/healthz") == 200, seconds=60)
        assert not is_open("127.0.0.2", port)
    with worker(app, "--metrics-port", str(port), "--metrics-host", "0.0.0.0"):
        wait_until(lambda: is_open("127.0.0.2", port), seconds=60)


def is_open(host: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


def test_what_handlers_enqueue_is_counted(app, port):
    """One by one and by many, from a thread too; not what was there already."""
    asking = Asking(port)
    with worker(app, "--metrics-port", str(port)) as process:
        wait_until(lambda: asking.status("/readyz") == 200, seconds=60)
        app.enqueue("spread", {"count": 300, "key": "once"})
        wait_until(lambda: asking.finished("spread", "succeeded") == 1)
        labels = {"queue": "default", "kind": "noop"}

        wait_until(lambda: asking.number("rowlock_jobs_enqueued_total", **labels) == 302)
        assert process.poll() is None


def test_what_schedules_enqueue_is_counted(app, port):
    """By the worker that has fired them."""
    asking = Asking(port)
    labels = {"queue": "default", "kind": "every_second"}
    with worker(app, "--metrics-port", str(port), cron=True):
        wait_until(lambda: asking.status("/readyz") == 200, seconds=60)
        wait_until(lambda: asking.number("rowlock_jobs_enqueued_total", **labels) >= 2, seconds=60)


def test_a_worker_that_stands_still_is_not_ready(app, port, monkeypatch):
    """Its children are stopped: they claim nothing, whatever else is well."""
    asking = Asking(port)
    with worker(app, "--metrics-port", str(port)) as process:
        wait_until(lambda: asking.status("/readyz") == 200, seconds=60)
        (child,) = children_of(process)
        os.kill(child, signal.SIGSTOP)
        try:
            wait_until(lambda: asking.status("/readyz") == 503)
            assert asking.status("/healthz") == 200
        finally:
            os.kill(child, signal.SIGCONT)
        wait_until(lambda: asking.status("/readyz") == 200, seconds=60)


def test_a_port_that_is_taken_is_said(app, port):
    """At the start, and nothing is run."""
    with (
        socket.create_server(("127.0.0.1", port)),
        worker(app, "--metrics-port", str(port), capture=True) as process,
    ):
        assert process.wait(30) == 4
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert f"another program listens on 127.0.0.1:{port}; choose another --metrics-port" in said


def test_a_child_that_can_not_claim_is_not_ready():
    """Alive, and beaten for, but its last good look at the queue is long ago."""
    child = leaving_child()
    memory = SharedCounts.make_descriptor()
    child.counts = SharedCounts(memory)
    os.close(memory)
    found = []
    for ago in (0, config.READY_SECONDS - 5, config.READY_SECONDS + 1):
        child.counts.write(Totals(), good_at=time.monotonic() - ago)
        found.append(child.is_ready())
    child.close()

    assert found == [True, True, False]

"""Alerts by webhook: what is sent to whom, and when."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import rowlock
from rowlock import config
from rowlock.ids import new_id
from rowlock.job import Count, JobState, QueueStats
from rowlock.server.alerts import (
    Alert,
    AlertFacts,
    AlertRefused,
    Alerts,
    AlertSettings,
    AlertStates,
    judge,
    message_of,
    send,
)
from rowlock.store.ops.history import write_history
from rowlock.tally import RunEnd, Sums
from rowlock.worker.trouble import ServiceErrors

RULES = AlertSettings(url="http://127.0.0.1:1/", age_seconds=300, dead=10)


def queue(name: str, *, ready: int, age: float | None, is_paused: bool = False) -> QueueStats:
    counts = dict.fromkeys(JobState, Count(0)) | {JobState.READY: Count(ready)}
    return QueueStats(name, counts, age, is_paused)


def test_what_is_wrong():
    """Old jobs, deaths and missing workers; a paused queue is left alone."""
    facts = AlertFacts(
        queues=[
            queue("mail", ready=3, age=412.0),
            queue("fast", ready=1, age=300.0),
            queue("held", ready=9, age=9000.0, is_paused=True),
        ],
        dead={"mail": 9, "pdf": 10},
        workers=0,
    )
    found = judge(facts, RULES)

    assert {id: (each.queue, each.value, each.bound) for id, each in found.items()} == {
        "no_workers": (None, 4.0, 0.0),
        "queue_age:mail": ("mail", 412.0, 300.0),
        "dead:pdf": ("pdf", 10.0, 10.0),
    }
    assert "waited 412 s (more than 300 s)" in found["queue_age:mail"].text


def alert(id: str) -> Alert:
    return Alert(id=id, alert="dead", text=id, value=1.0, bound=1.0)


def test_two_looks_confirm_a_change():
    """What is seen once is not sent, what was not delivered is sent again, and the end is sent."""
    states, fire = AlertStates(), {"a": alert("a")}
    sent = [states.changes(found) for found in ({}, fire, {}, fire, fire, fire)]
    states.note(*sent[-1])
    after = [states.changes(found) for found in (fire, {}, {})]

    assert sent == [([], [])] * 4 + [([alert("a")], [])] * 2
    assert after == [([], []), ([], []), ([], [alert("a")])]


def test_a_call_has_a_bounded_number_of_alerts():
    """The rest follow with the next one, and people see the first lines."""
    found = {f"{number:04}": alert(f"{number:04}") for number in range(250)}
    states = AlertStates()
    states.changes(found)
    sizes: list[int] = []
    for _ in range(4):
        firing, resolved = states.changes(found)
        states.note(firing, resolved)
        sizes.append(len(firing))
    text = json.loads(message_of(list(found.values()), [], now=datetime.now(UTC)))["text"]

    assert sizes == [100, 100, 50, 0]
    assert text.splitlines()[-1] == f"and {250 - config.ALERT_LINES} more"


class Receiver(HTTPServer):
    """Takes calls, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.calls: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?team=a"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls.append((self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_jobs_without_a_worker_raise_an_alert(any_url: str, receiver: Receiver):
    """Signed, at the second look; and once more when they are gone."""
    settings = AlertSettings(url=receiver.url, secret="s3cret", age_seconds=3600)

    async def look() -> None:
        async with rowlock.App(any_url) as app:
            job = await app.aenqueue("noop", queue="mail")
            alerts = Alerts(app.store, settings, ServiceErrors())
            for _ in range(3):
                assert await alerts.look() == config.ALERT_SECONDS
            await app.acancel(job.id)
            for _ in range(3):
                await alerts.look()

    asyncio.run(look())
    bodies = [json.loads(body) for _, _, body in receiver.calls]

    assert [
        [(each["id"], each["state"], each["value"]) for each in body["alerts"]] for body in bodies
    ] == [[("no_workers", "firing", 1.0)], [("no_workers", "resolved", 1.0)]]
    assert bodies[0]["text"] == "no worker is running, and 1 job is ready"
    path, headers, body = receiver.calls[0]
    stamp, mac = (part.partition("=")[2] for part in headers["Rowlock-Signature"].split(","))
    expected = hmac.new(b"s3cret", f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert (path, mac) == ("/hook?team=a", expected)


def test_jobs_that_died_lately_raise_an_alert(any_url: str, receiver: Receiver):
    """By the history that workers write, queue by queue."""
    died = Sums()
    died.add(RunEnd.DEAD, 12)

    async def look() -> None:
        async with rowlock.App(any_url) as app:
            await app.store.arun(write_history({("pdf", "render"): died}, part=new_id()))
            alerts = Alerts(app.store, AlertSettings(url=receiver.url, dead=10), ServiceErrors())
            await alerts.look()
            await alerts.look()

    asyncio.run(look())
    ((_, _, body),) = receiver.calls

    assert json.loads(body)["text"] == "queue pdf: 12 jobs died in the last 10 minutes"


@pytest.mark.parametrize("status", [302, 404, 500])
def test_only_a_success_counts_as_delivered(receiver: Receiver, status: int):
    """A redirect is not followed, and the error does not show the path, which may be a secret."""
    receiver.status = status
    with pytest.raises(AlertRefused) as refused:
        send(AlertSettings(url=receiver.url), b"{}", at=0)

    assert str(refused.value) == f"127.0.0.1 answered with status {status}"
    assert len(receiver.calls) == 1
    assert "Rowlock-Signature" not in receiver.calls[0][1]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/",
        "https://",
        "file:///etc/passwd",
        "http://me:pw@a/",
        "http://a:x/",
        "http://a b/",
    ],
)
def test_an_address_that_is_none_is_refused(url: str):
    """When the server starts, not when something is wrong."""
    with pytest.raises(rowlock.OptionInvalid) as refused:
        AlertSettings(url=url)

    assert refused.value.option == "alert-url"

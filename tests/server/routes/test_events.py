"""`/v1/events`: what happens is told to those who listen, wherever it was done."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import httpx
import pytest

import rowlock
from rowlock import config
from rowlock.events import Event, EventBox, EventType
from rowlock.server.background import Background
from rowlock.server.live import Feed, FeedItem, Listener
from rowlock.store.ops.events import last_event, prune_events, read_events, write_events
from rowlock.store.ops.tokens import new_token
from rowlock.store.ops.workflow_manage import tend_workflows
from rowlock.store.options import TypedJob
from rowlock.worker.trouble import ServiceErrors
from tests.support.server import Running, lease, make_app, settle
from tests.worker.waiting import wait_until


class Stream:
    """A client that reads events in a thread."""

    def __init__(self, response: httpx.Response) -> None:
        self.events: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.is_open = threading.Event()
        self.is_over = threading.Event()
        self._response = response
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "retry":
                    self.is_open.set()
                elif name == "id":
                    self.ids.append(value)
                elif name == "data":
                    self.events.append(json.loads(value))
        except (httpx.HTTPError, httpx.StreamError):
            pass
        finally:
            self.is_over.set()

    def close(self) -> None:
        """End it for its thread too, which would go on to wait on a closed socket."""
        connection = self._response.extensions["network_stream"].get_extra_info("socket")
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        assert self.is_over.wait(20)

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def wait_for(self, *types: str) -> list[dict[str, Any]]:
        wait_until(lambda: all(type in self.types() for type in types))
        return [event for event in self.events if event["type"] in types]


@contextmanager
def listening(
    api: Running, *, tenant: str | None = None, place: str | None = None, **query: Any
) -> Iterator[Stream]:
    headers = {"last-event-id": place} if place else {}
    client = api("read", tenant=tenant)
    with client.stream("GET", "/v1/events", params=query, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = Stream(response)
        assert stream.is_open.wait(20)
        try:
            yield stream
        finally:
            stream.close()


def run(api: Running, kind: str = "ping", *, queue: str = "web", tenant=None, **outcome) -> str:
    """Enqueue, lease and settle a job over HTTP; its id."""
    job = api.app.enqueue(kind, queue=queue, tenant=tenant)
    held = lease(api, queues=[queue], kinds=[kind])
    settle(api, held, **(outcome or {"outcome": "succeeded"}))
    return job.id


def test_a_job_is_told_of(api: Running):
    """Enqueued and succeeded, with what is known of it; through the database."""
    with listening(api) as stream:
        id = run(api)
        found = stream.wait_for("enqueued", "succeeded")

    assert {event["job_id"] for event in found} == {id}
    ended = found[-1] if found[-1]["type"] == "succeeded" else found[0]
    assert (
        ended["queue"], ended["kind"], ended["attempt"], ended["count"],
    ) == ("web", "ping", 1, 1)  # fmt: skip
    assert not ended["is_summary"] and ended["duration_seconds"] >= 0


def test_events_come_from_the_store(api: Running):
    """Another process has told them."""
    with listening(api) as stream:
        told = Event(EventType.DEAD, "q", "k", None, None, count=7)
        api.app.store.run(write_events([told]))
        (event,) = stream.wait_for("dead")

    assert (event["count"], event["is_summary"], event["queue"]) == (7, True, "q")


def test_a_change_of_a_limit_is_published(api: Running):
    """What was done to which key, and why. Tenants don't hear of it."""
    stripe = api.app.limit("stripe", rate="10/s", per="customer")
    with listening(api) as stream, listening(api, tenant="acme") as other:
        stripe.set(rate="5/s burst 2")
        stripe.pause(key="acme", seconds=60, reason="they asked for it")
        stripe.resume(key="acme")
        stripe.unset()
        wait_until(lambda: stream.types().count("limit") == 4)

    assert [
        (each["limit"], each["change"], each.get("key"), each.get("reason"), each["is_summary"])
        for each in stream.wait_for("limit")
    ] == [
        ("stripe", "set", None, None, False),
        ("stripe", "paused", "acme", "they asked for it", False),
        ("stripe", "resumed", "acme", None, False),
        ("stripe", "unset", None, None, False),
    ]
    assert other.events == []


def test_the_stop_of_a_workflow_is_told(api: Running):
    """That it is dead and waits for a retry, and then its end. A tenant hears of its own."""
    app = api.app
    with listening(api, tenant="acme") as stream, listening(api, tenant="zoo") as other:
        with app.workflow("crawl", tenant="acme") as flow:
            first = flow.add(cast("TypedJob[Any]", app.prepare({"kind": "ping"})))
            flow.add(cast("TypedJob[Any]", app.prepare({"kind": "ping"})), after=first)
        (held,) = app.store.claim(worker="w", queues=["default"])
        app.store.fail(held, "no", permanent=True)
        (stuck,) = stream.wait_for("workflow")
        app.cancel_workflow(flow.id)
        app.store.run(tend_workflows())
        wait_until(lambda: stream.types().count("workflow") == 2)
        ended = stream.wait_for("workflow")[1]

    assert (stuck["workflow"], stuck["name"], stuck["state"]) == (flow.id, "crawl", "dead")
    assert (ended["workflow"], ended["state"], ended["is_summary"]) == (flow.id, "dead", False)
    assert other.events == []


def test_filters(api: Running):
    """By queue, kind and type."""
    with (
        listening(api, queue="mail") as by_queue,
        listening(api, kind="pong") as by_kind,
        listening(api, type=["dead", "released"]) as by_type,
    ):
        run(api, "ping", queue="mail")
        run(api, "pong")
        run(api, outcome="failed", permanent=True)
        by_queue.wait_for("enqueued", "succeeded")
        by_kind.wait_for("enqueued", "succeeded")
        by_type.wait_for("dead")

    assert {event["queue"] for event in by_queue.events} == {"mail"}
    assert {event["kind"] for event in by_kind.events} == {"pong"}
    assert set(by_type.types()) == {"dead"}
    assert by_type.events[0]["error"] == "Error"


def test_tenants_hear_of_their_own(api: Running):
    """Whoever is bound to one; another can't be named."""
    with listening(api, tenant="acme") as acme, listening(api, tenant="zoo") as zoo:
        run(api, tenant="acme")
        last = run(api, tenant="zoo")
        api.app.store.run(write_events([Event(EventType.DEAD, "q", "k", count=3)]))
        zoo.wait_for("enqueued", "succeeded")
        acme.wait_for("enqueued", "succeeded")
        wait_until(lambda: last in [event["job_id"] for event in zoo.events])

    assert {event["tenant"] for event in acme.events} == {"acme"}
    assert {event["tenant"] for event in zoo.events} == {"zoo"}
    refused = api("read", tenant="acme").get("/v1/events", params={"tenant": "zoo"})
    assert refused.status_code == 403


def test_a_listener_goes_on_where_it_was(api: Running):
    """What was told meanwhile is told when it comes back, and nothing twice."""
    with listening(api, type=["succeeded"]) as stream:
        run(api)
        stream.wait_for("succeeded")
        place = stream.ids[-1]
    before = api.app.store.run(last_event())
    missed = [run(api) for _ in range(3)]
    wait_until(lambda: api.app.store.run(last_event()) > before)
    with listening(api, type=["succeeded"], place=place) as again:
        again.wait_for("succeeded")
        missed.append(run(api))
        wait_until(lambda: len(again.events) >= 4)

    assert sorted(missed) == sorted(event["job_id"] for event in again.events)


def test_places_that_are_none(api: Running):
    """Whatever was not the id of an event of this very stream is refused."""
    job = api.app.enqueue("ping", tenant="acme")
    with listening(api, tenant="acme", job=job.id, seconds=0) as stream:
        assert stream.is_over.wait(20)
    (id,) = stream.ids

    def status(place: str, *, tenant: str | None = None, **query: Any) -> int:
        headers = {"last-event-id": place}
        client = api("read", tenant=tenant)
        return client.get("/v1/events", params={**query, "seconds": 0}, headers=headers).status_code

    assert status(id, tenant="acme", job=job.id) == 200
    assert status(id, tenant="acme") == status(id, job=job.id) == 422
    for place in ("x", "7.0", "1", ""):
        assert status(place) == status(place, job=job.id) == 422


def test_a_job_is_watched(api: Running):
    """Its states, its progress and its log lines, from how it stands."""
    job = api.app.enqueue("ping", queue="web")
    with listening(api, job=job.id) as stream:
        stream.wait_for("ready")
        held = lease(api, queues=["web"])
        stream.wait_for("running")
        beat = {"id": held["id"], "token": held["token"], "log": ["one", "two"],
                "progress": {"fraction": 0.5, "text": "half"}}  # fmt: skip
        api("work").post("/v1/leases/heartbeat", json={"leases": [beat]}).raise_for_status()
        (progress,) = stream.wait_for("progress")
        lines = stream.wait_for("log")
        settle(api, held, outcome="succeeded")
        stream.wait_for("succeeded")
        api().delete(f"/v1/jobs/{job.id}").raise_for_status()
        stream.wait_for("gone")
        assert stream.is_over.wait(20)

    assert progress["progress"] == {"fraction": 0.5, "text": "half"}
    assert [event["line"] for event in lines] == ["one", "two"]


def test_a_job_that_waits_for_others_is_watched(api: Running):
    """Its stream begins with that state."""
    first = {"name": "first", "kind": "ping"}
    body = {"name": "flow", "jobs": [first, {"name": "then", "kind": "ping", "after": ["first"]}]}
    jobs = api("enqueue").post("/v1/workflows", json=body).json()["jobs"]
    with listening(api, job=jobs["then"], seconds=0) as stream:
        assert stream.is_over.wait(20)

    assert [event["type"] for event in stream.events] == ["waiting"]


def test_a_watched_jobs_log_goes_on(api: Running):
    """After the lines that were seen."""
    job = api.app.enqueue("ping", queue="web")
    (held,) = api.app.store.claim(worker="w", queues=["web"])
    api.app.store.log(held, ["one", "two"])
    with listening(api, job=job.id, seconds=0) as before:
        assert before.is_over.wait(20)
    api.app.store.log(held, ["three"])
    with listening(api, job=job.id, place=before.ids[-1], seconds=0) as stream:
        assert stream.is_over.wait(20)

    assert [(e["type"], e["line"]) for e in stream.events] == [("running", None), ("log", "three")]


def test_a_job_that_is_not_there(api: Running):
    """404, as for another tenant's."""
    job = api.app.enqueue("ping", tenant="acme")
    asked = {"job": job.id}

    assert api("read", tenant="zoo").get("/v1/events", params=asked).status_code == 404
    assert api("read").get("/v1/events", params={"job": "x"}).status_code == 422


def test_many_new_jobs_are_summed_up(api: Running):
    """Above the rate at which each is told."""
    with listening(api) as stream:
        api.app.enqueue_many([{"kind": "ping", "queue": "web"} for _ in range(150)])
        wait_until(lambda: sum(event["count"] for event in stream.events) >= 150)

    assert any(event["is_summary"] for event in stream.events)


def test_too_many_listeners_are_refused(api: Running, monkeypatch: pytest.MonkeyPatch):
    """With the time to come again."""
    service = api.server._api.service
    job = api.app.enqueue("ping")
    wait_until(lambda: not service.streams)
    monkeypatch.setattr(config, "HTTP_LISTENERS_MAX", 4)
    with listening(api), listening(api, job=job.id):
        for query in ({}, {"job": job.id}):
            refused = api("read").get("/v1/events", params=query)

            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")


@pytest.mark.parametrize("is_watching", [False, True])
def test_who_is_shut_out_hears_no_more(api: Running, is_watching: bool):
    """A stream ends instead of telling something to a token that was revoked meanwhile."""
    job = api.app.enqueue("ping", queue="shut")
    new = new_token(name="leaving", scopes=["read"])
    api.app.store.run(new.add())
    query = {"job": job.id} if is_watching else {"type": "dead"}
    headers = {"authorization": f"Bearer {new.secret.text}"}
    with api.client().stream("GET", "/v1/events", params=query, headers=headers) as response:
        stream = Stream(response)
        assert stream.is_open.wait(20)
        if is_watching:
            stream.wait_for("ready")
        told = len(stream.events)
        answer = api("admin").delete(f"/v1/tokens/{new.secret.id}")
        api.app.cancel(job.id)
        api.app.store.run(write_events([Event(EventType.DEAD, "q", "k")]))
        assert stream.is_over.wait(20)

    assert answer.status_code == 204
    assert told == len(stream.events)


def test_the_server_stops_with_listeners(module_url: str):
    """Streams end, and nobody waits for them."""
    with Running(make_app(module_url)) as running:
        running.make_tokens()
        job = running.app.enqueue("ping")
        with listening(running) as all_of_it, listening(running, job=job.id) as watching:
            running.server.stop()
            assert all_of_it.is_over.wait(20) and watching.is_over.wait(20)


@pytest.mark.asyncio
async def test_who_begins_second_takes_no_news_for_old(any_url: str, monkeypatch):
    """Two begin at once, and a job comes when the first is answered: it is told."""
    async with rowlock.App(any_url) as app:
        await app.amigrate()
        feed = Feed(app.store, Background(ServiceErrors()))
        looked, may_end = asyncio.Event(), asyncio.Event()
        arun = app.store.arun

        async def slowly(op: Any) -> Any:
            if op.name == "newest_jobs":
                looked.set()
                await may_end.wait()
            return await arun(op)

        monkeypatch.setattr(app.store, "arun", slowly)
        second = asyncio.create_task(feed.begin())
        await looked.wait()
        monkeypatch.setattr(app.store, "arun", arun)
        await feed.begin()
        job = await app.aenqueue("ping")
        may_end.set()
        await second

        with feed.listening(lambda _: True) as listener:
            await feed._read_if_heard()
            heard = listener.take()
        await feed._background.aclose()
    assert [each.event.job_id for each in heard] == [job.id]


def test_a_slow_listener_loses_the_oldest():
    """And is told how many, once."""
    listener = Listener(lambda _: True)
    for number in range(config.EVENTS_BUFFER_MAX + 5):
        listener.put(FeedItem(Event(EventType.DEAD, "q", "k", job_id=str(number)), at=number))
    first, second, *rest = listener.take()

    assert (first.event.type, first.event.count) == (EventType.DROPPED, 5)
    assert second.event.job_id == "5"
    assert len(rest) == config.EVENTS_BUFFER_MAX - 1
    assert listener.take() == []


def test_a_box_is_bounded():
    """So many one by one, so many names by numbers, and one for the rest; none uncounted."""
    box = EventBox()
    for number in range(1_000):
        box.put(Event(EventType.DEAD, f"q{number}", "k", "acme", str(number)))
    events = box.take()

    assert len(events) == 2 * config.EVENTS_SINGLE_MAX + 1
    assert sum(event.count for event in events) == 1_000
    assert {event.tenant for event in events if event.queue == "…other"} == {None}
    assert not box


def test_old_events_go(api: Running):
    """What nobody heard in ten minutes is of the past."""
    store = api.app.store
    before = store.run(last_event())
    store.run(write_events([Event(EventType.DEAD, "q", "k")]))
    store.run(prune_events())

    assert len(store.run(read_events(before))) == 1


def test_a_client_that_leaves_is_forgotten(api: Running):
    """At once, and not when there is next something to tell."""
    service = api.server._api.service
    with listening(api):
        assert service.streams
    wait_until(lambda: not service.streams, seconds=10)

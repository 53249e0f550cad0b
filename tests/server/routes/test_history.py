"""`/v1/history`: what workers have counted, and what the server has counted for those of HTTP."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import rowlock
from rowlock.lifecycle import Failed
from rowlock.store import Settlement
from rowlock.store.ops.history import sample_depth
from rowlock.worker.counts import ProcessCounts
from tests.support.server import Running, empty, lease, make_app, settle
from tests.worker.waiting import wait_until


def history(api: Running, **query: Any) -> dict[str, Any]:
    answer = api("read").get("/v1/history", params={"range": "5m", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def written(api: Running) -> None:
    """What the server has counted, written now instead of in ten seconds."""
    service = api.server._api.service
    service.ledger.write(service.store)


def test_settles_over_http_are_counted(api: Running):
    """By what became of them, which the server decides."""
    for outcome in (
        {"outcome": "succeeded"},
        {"outcome": "failed"},
        {"outcome": "failed", "permanent": True},
        {"outcome": "cancelled"},
        {"outcome": "released", "delay": 60},
    ):
        api.app.enqueue("ping", queue="web")
        settle(api, lease(api, queues=["web"]), **outcome)
    written(api)
    found = history(api, by="queue,kind")
    (series,) = found["series"]

    assert (series["queue"], series["kind"]) == ("web", "ping")
    ends = ("succeeded", "retrying", "dead", "cancelled", "released")
    assert [series["total"][end] for end in ends] == [1] * 5
    assert [sum(series[end]) for end in ends] == [1] * 5
    assert {len(series[name]) for name in (*ends, "run_p99", "wait_p50")} == {len(found["times"])}
    assert series["total"]["run"]["count"] == 5
    assert 0 <= series["total"]["wait"]["p50"] <= series["total"]["wait"]["p99"] < 60


def test_embedded_workers_count(api: Running, module_url: str):
    """Each batch in memory, written at the end of the worker, and every ten seconds."""
    app = rowlock.App(module_url)

    @app.task(queue="web")
    async def fine() -> None: ...

    @app.task(queue="web", max_attempts=1)
    def broken() -> None:
        raise ValueError("x")

    for _ in range(150):
        fine.enqueue()
    broken.enqueue()

    async def work() -> None:
        async with app.worker(queues=["web"]):
            while not all(  # noqa: ASYNC110  # the worker has no signal for this
                job.state.is_terminal for job in await app.alist(limit=200)
            ):
                await asyncio.sleep(0.01)
        await app.aclose()

    asyncio.run(work())
    by_kind = {series["kind"]: series["total"] for series in history(api, by="kind")["series"]}

    assert (by_kind["fine"]["succeeded"], by_kind["fine"]["dead"]) == (150, 0)
    assert (by_kind["broken"]["succeeded"], by_kind["broken"]["dead"]) == (0, 1)
    # Of large batches some runs are timed, and stand for the others.
    assert 75 <= by_kind["fine"]["run"]["count"] <= 300


def test_depths_are_shown(api: Running):
    """Of each queue, or of all together."""
    for queue in ("a", "a", "b"):
        api.app.enqueue("ping", queue=queue)

    def found() -> list[tuple[str | None, int]]:
        """The server's own housekeeping samples too: maybe just before the jobs were there."""
        empty(api.app.url, tables=["depth"])
        api.app.store.run(sample_depth())
        depths = [*history(api, by="queue")["depths"], *history(api)["depths"]]
        return [(each["queue"], max([0, *filter(None, each["ready"])])) for each in depths]

    wait_until(lambda: found() == [("a", 2), ("b", 1), (None, 3)])


def test_ranges(api: Running):
    """Steps and times fit the range; a stretch may be named instead."""
    for name, step, least, most in (
        ("5m", 30, 10, 12),
        ("1h", 60, 60, 62),
        ("24h", 600, 144, 146),
        ("7d", 3_600, 168, 170),
    ):
        found = history(api, range=name)
        assert step == found["step"]
        assert least <= len(found["times"]) <= most
    assert history(api, step=120)["step"] == 120
    named = history(api, since="2020-01-01T00:00:00Z", until="2099-01-01T00:00:00Z")
    assert 168 <= len(named["times"]) <= 170


def test_bad_queries_are_named(api: Running):
    """As everywhere."""
    for query in ({"range": "2h"}, {"step": "5"}, {"by": "tenant"}, {"since": "yesterday"}):
        answer = api("read").get("/v1/history", params=query)
        assert (
            answer.status_code,
            [each["field"] for each in answer.json()["errors"]],
        ) == (422, list(query))


def test_a_failed_write_is_kept_for_the_next(api: Running):
    """And is not counted twice: the second try has the id of the first."""
    ledger = ProcessCounts()
    (job,) = [api.app.enqueue("ping", queue="web")]
    (held,) = api.app.store.claim(worker="w", queues=["web"])
    settlements = [Settlement(held, Failed("E", "m"))]
    from rowlock.store.ops.settle import settle as settle_op

    missed = api.app.store.run(settle_op(settlements, chance=api.server._api.service.chance))
    ledger.settled(settlements, missed)
    first = ledger._next()
    assert first is not None
    api.app.store.run(first)
    ledger.write(api.app.store)

    assert job.id == held.id
    assert history(api)["series"][0]["total"]["retrying"] == 1
    assert sum(sums.total for sums in ledger.totals.tally.values()) == 1


def test_the_server_writes_by_itself(module_url: str):
    """At its end at the latest."""

    with Running(make_app(module_url), is_open=True) as running:
        # Makes the tables, too, where this test comes first.
        running.make_tokens()
        empty(module_url)
        running.app.enqueue("ping")
        settle(running, lease(running), outcome="succeeded")
    app = make_app(module_url)
    with Running(app, is_open=True) as again:
        again.make_tokens()
        deadline = time.monotonic() + 30
        while not history(again)["series"][0]["total"]["succeeded"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

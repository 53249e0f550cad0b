"""`/metrics` of the server: what it did, and what is in the database."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.server import monitoring
from rowlock.server.monitoring import Gauges
from rowlock.store.ops.schedule import new_schedule
from rowlock.store.ops.stats import Exact, exact_counts
from rowlock.store.options import new_job
from rowlock.store.steps import Op, Statement, Steps, reading
from tests.support.metrics import samples
from tests.support.server import Running, lease, settle


def read(api: Running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    service = api.server._api.service
    # As ten seconds later.
    service.gauges = Gauges(service.store)
    answer = api("read").get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return samples(answer.content)


def key(metric: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return metric, tuple(sorted(labels.items()))


def test_the_server_tells_of_itself_and_of_queues(api: Running):
    """Jobs that came and ended over HTTP; queues and workers as they are."""
    before = read(api)
    for _ in range(2):
        body = {"kind": "ping", "queue": "gauged", "key": "once"}
        api("enqueue").post("/v1/jobs", json=body).raise_for_status()
    jobs = [{"kind": "ping", "queue": "gauged"} for _ in range(3)]
    api("enqueue").post("/v1/jobs/batch", json={"jobs": jobs}).raise_for_status()
    settle(api, lease(api, queues=["gauged"]), outcome="succeeded")
    after = read(api)
    name = {"queue": "gauged", "kind": "ping"}

    def grown(metric: str, **labels: str) -> float:
        return after[key(metric, **labels)] - before.get(key(metric, **labels), 0)

    assert grown("rowlock_jobs_enqueued_total", **name) == 4
    assert grown("rowlock_jobs_finished_total", **name, outcome="succeeded") == 1
    assert grown("rowlock_job_wait_seconds_count", **name) == 1
    assert after[key("rowlock_queue_jobs", queue="gauged", state="ready")] == 3
    assert after[key("rowlock_queue_jobs", queue="gauged", state="succeeded")] == 1
    assert after[key("rowlock_queue_oldest_ready_seconds", queue="gauged")] >= 0
    assert after[key("rowlock_workers")] == 1


def test_follow_ups_over_http_are_counted(api: Running):
    """Those of a settlement that held, as of any worker; not those of one that is sent again."""
    api.app.enqueue("ping", queue="parents")
    held = lease(api, queues=["parents"])
    follow_ups = [{"kind": "ping", "queue": "children"} for _ in range(2)]
    settle(api, held, outcome="succeeded", follow_ups=follow_ups)
    again = {"id": held["id"], "token": held["token"], "outcome": "succeeded"}
    body = {"settlements": [{**again, "follow_ups": follow_ups}]}
    api("work").post("/v1/leases/settle", json=body).raise_for_status()

    told = read(api)
    assert told[key("rowlock_jobs_enqueued_total", queue="children", kind="ping")] == 2


def test_a_schedule_that_is_run_over_http_is_counted(api: Running):
    """It enqueues a job like any other call; not if its key is in flight."""
    job = new_job(kind="ping", payload="{}", queue="by-hand", key="one")
    api.app.store.put_schedule(new_schedule("by-hand", job, cron="0 3 1 1 *"))
    for _ in range(2):
        api("admin").post("/v1/schedules/by-hand/run").raise_for_status()

    told = read(api)
    assert told[key("rowlock_jobs_enqueued_total", queue="by-hand", kind="ping")] == 1


def test_queues_are_looked_at_once_in_a_while(api: Running):
    """However often it is asked."""
    read(api)
    api.app.enqueue("ping", queue="later")
    answer = api("read").get("/metrics")

    assert key("rowlock_queue_jobs", queue="later", state="ready") not in samples(answer.content)


def test_gauges_are_exact_beyond_the_bound_of_stats(api: Running, monkeypatch: pytest.MonkeyPatch):
    """What `stats` gives as "10,000+" is counted; a queue of which all has succeeded, too."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    store = api.app.store
    for queue, count in (("once", 2), ("done", 20), ("ready", 30)):
        store.enqueue([new_job(kind="ping", payload="{}", queue=queue) for _ in range(count)])
        if queue != "ready":
            store.succeed(store.claim(worker="w", queues=[queue], limit=count))
    told = read(api)

    def jobs(queue: str, state: str) -> float:
        return told[key("rowlock_queue_jobs", queue=queue, state=state)]

    assert (
        jobs("once", "succeeded"),
        jobs("done", "succeeded"),
        jobs("ready", "ready"),
    ) == (2, 20, 30)


def test_a_count_that_fails_leaves_a_gap(
    api: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Numbers that nobody knows are left out; the small ones are there."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    jobs = [new_job(kind="ping", payload="{}", queue="gap") for _ in range(9)]
    api.app.store.enqueue(jobs)

    def refused() -> Op[Exact]:
        def steps() -> Steps[Exact]:
            yield Statement("clock")
            raise StoreUnavailable("too slow")

        return reading("exact_counts", steps)

    monkeypatch.setattr(monitoring, "exact_counts", refused)
    told = read(api)

    assert key("rowlock_queue_jobs", queue="gap", state="ready") not in told
    assert told[key("rowlock_queue_jobs", queue="gap", state="running")] == 0
    assert "counting them failed: too slow" in caplog.text


def test_all_rows_are_counted_once_a_minute(api: Running, monkeypatch: pytest.MonkeyPatch):
    """However often the queues are looked at; in between, the last count is shown."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    monkeypatch.setattr(config, "METRICS_KNOWN_SECONDS", 0.0)
    counted: list[Op[Exact]] = []
    monkeypatch.setattr(
        monitoring, "exact_counts", lambda: counted.append(exact_counts()) or counted[-1]
    )
    ready = key("rowlock_queue_jobs", queue="minute", state="ready")

    def grow() -> None:
        jobs = [new_job(kind="ping", payload="{}", queue="minute") for _ in range(9)]
        api.app.store.enqueue(jobs)

    grow()
    told = [read(api)[ready]]
    grow()
    told.append(samples(api("read").get("/metrics").content)[ready])

    assert (told, len(counted)) == ([9, 9], 1)

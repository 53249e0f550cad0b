"""`/metrics` of the server: what it did, and what is in the database."""

from __future__ import annotations

from rowlock.server.gauges import Gauges
from tests.observe.test_metrics import samples
from tests.server.running import Running
from tests.server.test_history import lease, settle


def read(api: Running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    service = api.server._api.service
    # As ten seconds later.
    service.gauges = Gauges(service.store)
    answer = api("read").get("/metrics")
    assert 200 == answer.status_code
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

    assert 4 == grown("rowlock_jobs_enqueued_total", **name)
    assert 1 == grown("rowlock_jobs_finished_total", **name, outcome="succeeded")
    assert 1 == grown("rowlock_job_wait_seconds_count", **name)
    assert 3 == after[key("rowlock_queue_jobs", queue="gauged", state="ready")]
    assert 1 == after[key("rowlock_queue_jobs", queue="gauged", state="succeeded")]
    assert after[key("rowlock_queue_oldest_ready_seconds", queue="gauged")] >= 0
    assert 1 == after[key("rowlock_workers")]


def test_queues_are_looked_at_once_in_a_while(api: Running):
    """However often it is asked."""
    read(api)
    api.app.enqueue("ping", queue="later")
    answer = api("read").get("/metrics")

    assert key("rowlock_queue_jobs", queue="later", state="ready") not in samples(answer.content)

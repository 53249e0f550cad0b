"""`app.why` of jobs that wait for their limits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rowlock import TENANT, Count, config
from rowlock.clock import from_us
from rowlock.job import WorkerVitals
from rowlock.store.ops.why import why
from tests.support.limits import declare, put
from tests.support.states import announce


@pytest.fixture(autouse=True)
def worker(app):
    """One that takes all jobs."""
    announce(app, queues=[], kinds=[])


def test_an_unknown_limit_is_told(app):
    """Nothing starts under it, so the job would wait forever."""
    (job,) = put(app.store, "stripe", "acme")
    told = app.why(job.id)

    assert (told.code, told.limit) == ("limit_unknown", "stripe")
    assert told.text == "no worker has declared its limit 'stripe' in this database yet"


def test_a_full_key_is_told(app, clock):
    """What runs there, since when, and what comes first."""
    declare(app.store, "stripe", per="customer", concurrency_per_key=2)
    *_, job = put(app.store, "stripe", "acme", jobs=6)
    put(app.store, "stripe", "acme", priority=5, jobs=2)
    app.store.claim(worker="w", queues=["default"], limit=1)
    started = from_us(clock.now_us())
    clock.advance(20)
    app.store.claim(worker="w", queues=["default"], limit=100)
    told = app.why(job.id)

    assert (told.code, told.limit, told.limit_key) == ("limit_full", "stripe", "acme")
    assert (told.running, told.allowed, told.since, told.ahead) == (2, 2, started, Count(5))
    assert told.text == (
        "2 of 2 run at limit stripe/acme, the longest since 2030-01-01 00:00:00 UTC; "
        "5 are before it"
    )


def test_a_full_limit_is_told(app):
    """As a whole: the key is not to blame."""
    declare(app.store, "pool", per="table", concurrency=1)
    put(app.store, "pool", "a")
    app.store.claim(worker="w", queues=["default"])
    (job,) = put(app.store, "pool", "b")
    told = app.why(job.id)

    assert (told.code, told.limit, told.limit_key) == ("limit_full", "pool", None)
    assert (told.running, told.allowed, told.ahead) == (1, 1, Count(0))
    assert told.text.startswith("1 of 1 run at limit pool, the longest since ")


@pytest.mark.parametrize("rules", [{"rate": "1/m"}, {"per": "customer", "rate_per_key": "1/m"}])
def test_a_rate_that_is_used_up_is_told(app, clock, rules):
    """When the next job may start."""
    declare(app.store, "api", **rules)
    key = "acme" if "per" in rules else ""
    *_, job = put(app.store, "api", key, jobs=3)
    app.store.claim(worker="w", queues=["default"])
    told = app.why(job.id)

    place = "api/acme" if key else "api"
    assert (told.code, told.until) == ("limit_rate", from_us(clock.now_us()) + timedelta(minutes=1))
    assert told.text == (
        f"limit {place} takes the next job at 2030-01-01 00:01:00 UTC; 1 is before it"
    )


def test_a_pause_is_told_with_its_reason(app, clock):
    """Of the limit or of its key, whichever lasts longer."""
    declare(app.store, "stripe", per="customer")
    (job,) = put(app.store, "stripe", "acme")
    app.store.pause_limit("stripe", "acme", 60, reason="429")
    of_key = app.why(job.id)
    app.store.pause_limit("stripe", reason="maintenance")
    of_limit = app.why(job.id)

    assert (of_key.code, of_key.limit_key, of_key.reason) == ("limit_closed", "acme", "429")
    assert of_key.text == "limit stripe/acme is paused until 2030-01-01 00:01:00 UTC: 429"
    assert of_key.until == from_us(clock.now_us()) + timedelta(minutes=1)
    assert (of_limit.code, of_limit.limit_key, of_limit.until) == ("limit_closed", None, None)
    assert of_limit.text == "limit stripe is paused until it is resumed: maintenance"


def test_the_job_before_it_in_the_order_is_told(app):
    """Whether it runs, or waits for a retry."""
    declare(app.store, "hooks", per="account", ordered=True)
    first, job = put(app.store, "hooks", "7", jobs=2, is_ordered=True)
    ready = app.why(job.id)
    (lease,) = app.store.claim(worker="w", queues=["default"])
    running = app.why(job.id)
    app.store.fail(lease, "boom", delay=60)
    waiting = app.why(job.id)

    assert {each.code for each in (ready, running, waiting)} == {"limit_order"}
    assert {each.waits_for for each in (ready, running, waiting)} == {first.id}
    begins = f"it waits for job {first.id}, which is before it in the order and "
    assert [each.text.removeprefix(begins) for each in (ready, running, waiting)] == [
        "is ready",
        "runs on worker w",
        "waits until 2030-01-01 00:01:00 UTC",
    ]
    assert app.why(first.id).code == "backoff"


def test_the_turns_of_other_keys_are_told(app):
    """Its key is open, and the workers serve others first, or have no slot."""
    declare(app.store, "exports", per="customer")
    for key in ("a", "b", "c"):
        *_, job = put(app.store, "exports", key, jobs=2)
    told = app.why(job.id)
    put(app.store, "other")
    announce(app, queues=[], kinds=[], vitals=WorkerVitals(slots=0))
    full = app.why(job.id)

    assert (told.code, told.keys, told.ahead) == ("limit_turn", Count(2), Count(1))
    assert told.text == "up to 2 other keys of limit exports have their turn first; 1 is before it"
    assert full.text == f"{told.text}; and all 0 slots of 1 live worker are taken"


def test_a_job_alone_at_its_limit_is_next(app):
    """As any job; or behind those of its own key."""
    declare(app.store, "exports", per="customer")
    first, second = put(app.store, "exports", "a", jobs=2)

    assert [app.why(job.id).code for job in (first, second)] == ["next", "behind"]
    assert app.why(second.id).ahead == Count(1)


def test_the_worker_comes_before_the_limit(app, clock):
    """Without one, the limit is not what stands in the way."""
    declare(app.store, "one", concurrency=1)
    (job,) = put(app.store, "one")
    clock.advance(config.WORKER_SILENT_SECONDS + 1)

    assert app.why(job.id).code == "no_worker"


def test_one_tenant_learns_nothing_of_others(app):
    """No counts, no ids and no reasons of other tenants' jobs."""
    store = app.store
    declare(store, "full", per="customer", concurrency_per_key=1)
    declare(store, "order", ordered=True)
    declare(store, "turns", per=TENANT)
    declare(store, "shut", per="customer")
    for name in ("full", "order", "turns", "shut"):
        put(store, name, "k", jobs=2, tenant="other", is_ordered=name == "order", queue=name)
    store.claim(worker="w", queues=["full"])
    store.pause_limit("shut", "k", reason="other owes us")
    told = {}
    for name in ("full", "order", "turns", "shut"):
        key = "acme" if name == "turns" else "k"
        (job,) = put(store, name, key, tenant="acme", is_ordered=name == "order", queue=name)
        told[name] = store.run(why(job.id, tenant="acme"))

    assert told["full"].text == "as many jobs run at limit full/k as may"
    assert (told["full"].running, told["full"].allowed, told["full"].since) == (None, None, None)
    assert told["full"].ahead == Count(0)
    assert (told["order"].waits_for, "another job" in told["order"].text) == (None, True)
    assert told["turns"].text == "other keys of limit turns have their turn first"
    assert told["turns"].keys is None
    assert (told["shut"].reason, "owes" in told["shut"].text) == (None, False)

"""`app.why`: what a job waits for."""

from __future__ import annotations

import uuid
from datetime import timedelta

import msgspec
import pytest

import rowlock
from rowlock import Count, WhyCode, config
from rowlock.clock import from_us
from rowlock.job import QueueSlots, WorkerVitals
from rowlock.store.ops.why import why
from tests.support.states import announce, begin, claim_ahead


def test_each_reason_is_told(app, clock):
    """From enqueue to end, the first thing that stands in the way of a job."""
    job = app.enqueue("work", delay=60, queue="mail", max_attempts=2)
    told = [app.why(job.id)]
    clock.advance(60)
    told.append(app.why(job.id))
    announce(app, queues=["mail"], kinds=["other"])
    told.append(app.why(job.id))
    announce(app, queues=["default"], kinds=["work"])
    told.append(app.why(job.id))
    announce(app, queues=[], kinds=["work"])
    told.append(app.why(job.id))
    app.enqueue("work", queue="full")
    app.store.claim(worker="w", queues=["full"])
    announce(app, queues=[], kinds=["work"], vitals=WorkerVitals(slots=1))
    told.append(app.why(job.id))
    app.enqueue("work", queue="mail", priority=5)
    told.append(app.why(job.id))
    app.pause("mail")
    told.append(app.why(job.id))
    app.resume("mail")
    leases = app.store.claim(worker="w", queues=["mail"], limit=2)
    told.append(app.why(job.id))
    (lease,) = [lease for lease in leases if lease.id == job.id]
    app.store.fail(lease, "boom")
    told.append(app.why(job.id))
    app.cancel(job.id)
    told.append(app.why(job.id))

    assert [each.code for each in told] == [
        "not_due",
        "no_worker",
        "unknown_kind",
        "unserved_queue",
        "next",
        "full",
        "behind",
        "paused",
        "running",
        "backoff",
        "finished",
    ]
    limited = {code for code in WhyCode if code.startswith("limit_")}
    in_workflows = {WhyCode.WAITS_FOR_JOBS, WhyCode.STUCK}
    assert {each.code for each in told} == set(WhyCode) - limited - in_workflows
    assert {(each.id, each.kind, each.queue) for each in told} == {(job.id, "work", "mail")}


def test_times_and_holders_are_told(app, clock):
    """Until when it waits or is held, since when it is ready or ended, by whom and after what."""
    job = app.enqueue("work", delay=60, max_attempts=2)
    early = app.why(job.id)
    clock.advance(60)
    announce(app, queues=[], kinds=["work"])
    ready = app.why(job.id)
    (lease,) = app.store.claim(worker="w", queues=["default"], lease=30)
    running = app.why(job.id)
    clock.advance(31)
    expired = app.why(job.id)
    app.store.fail(lease, ValueError("boom"), delay=10)
    failed = app.why(job.id)
    app.cancel(job.id)
    ended, now = app.why(job.id), from_us(clock.now_us())

    assert (job.run_at, job.run_at) == (early.until, ready.since)
    assert (running.worker, running.until) == ("w", job.run_at + timedelta(seconds=30))
    assert running.text == "worker w runs it and holds it until 2030-01-01 00:01:30 UTC"
    assert (expired.code, "soon be taken away" in expired.text) == ("running", True)
    assert (failed.error, failed.until) == ("ValueError: boom", now + timedelta(seconds=10))
    assert (ended.state, ended.since) == ("cancelled", now)


def test_an_error_is_told_in_one_line(app):
    """Its beginning in the text, all of it in its field."""
    text = "boom " + "x" * 1000 + "\nmore"
    waiting, dead = app.enqueue("work"), app.enqueue("work")
    leases = app.store.claim(worker="w", queues=["default"], limit=2)
    app.store.fail(leases[0], text)
    app.store.fail(leases[1], text, permanent=True)
    told = [app.why(job.id) for job in (waiting, dead)]

    assert [each.code for each in told] == ["backoff", "finished"]
    assert [each.error for each in told] == [f"Error: {text}"] * 2
    assert all("after Error: boom x" in each.text for each in told)
    assert all("\n" not in each.text and len(each.text) < 300 for each in told)


def test_a_request_to_cancel_is_told(app):
    """It is held, and on its way out."""
    job = app.enqueue("work")
    app.store.claim(worker="w", queues=["default"])
    app.cancel(job.id)

    assert app.why(job.id).text.endswith("asked to cancel")


def test_a_superseded_job_names_its_successor(app):
    """It was not cancelled by anybody."""
    job = app.enqueue("work", key="k", key_hold="until_started")
    (lease,) = app.store.claim(worker="w", queues=["default"])
    newer = app.enqueue("work", key="k", key_hold="until_started")
    app.store.fail(lease, "boom")
    told = app.why(job.id)

    assert (told.code, told.state) == ("finished", "cancelled")
    assert told.text.endswith(f", superseded by {newer.id}, which has its key")


def test_a_paused_queue_comes_before_the_time(app):
    """The time passes by itself; a queue stays paused until somebody resumes it."""
    job = app.enqueue("work", delay=60)
    app.pause("default")

    assert app.why(job.id).code == "paused"


def test_the_nearest_names_are_told(app):
    """A typing error in a kind or a queue: what was meant is shown."""
    kind = app.enqueue("send_emial")
    queue = app.enqueue("send_email", queue="mials")
    announce(app, queues=["mails", "default"], kinds=["send_email", "send_sms", "report"])
    by_kind, by_queue = app.why(kind.id), app.why(queue.id)

    assert (by_kind.code, by_kind.nearest[0]) == ("unknown_kind", "send_email")
    assert (by_queue.code, by_queue.nearest) == ("unserved_queue", ["mails"])
    assert "'send_email'" in by_kind.text
    assert "'mails'" in by_queue.text


def test_silent_workers_do_not_count(app, clock):
    """One that was not heard of for a minute takes nothing."""
    job = app.enqueue("work")
    announce(app, queues=[], kinds=["work"])
    before = app.why(job.id)
    clock.advance(config.WORKER_SILENT_SECONDS + 1)

    assert [before.code, app.why(job.id).code] == ["next", "no_worker"]


def test_who_names_no_kinds_takes_all(app):
    """A loop of the user's own may announce itself without any."""
    job = app.enqueue("work")
    announce(app, queues=[], kinds=[])

    assert app.why(job.id).code == "next"


def test_what_comes_first_is_counted(app):
    """Jobs of a higher priority and earlier ones, but none that nobody runs, or that is not due."""
    announce(app, queues=[], kinds=["work", "other"])
    app.enqueue_many([{"kind": "work"} for _ in range(3)])
    job = app.enqueue("other")
    app.enqueue("work")
    app.enqueue("other", priority=-1)
    app.enqueue_many([{"kind": "work", "priority": 5} for _ in range(2)])
    app.enqueue("work", priority=5, delay=60)
    app.enqueue_many([{"kind": "foreign", "priority": 9} for _ in range(4)])
    app.enqueue("work", queue="elsewhere", priority=9)
    told = app.why(job.id)

    assert (told.code, told.ahead, told.since) == ("behind", Count(5), job.run_at)
    assert told.text == "jobs are before it: 2 of a higher priority and 3 earlier"


def test_full_slots_are_named(app):
    """Of the queue alone, or of whole workers; not if one worker that takes it has a slot free."""
    vitals = WorkerVitals(slots=20, queue_slots={"media": QueueSlots(slots=2)})
    for worker in ("a", "b"):
        announce(app, queues=["media"], kinds=["work"], worker=worker, vitals=vitals)
        app.enqueue_many([{"kind": "work", "queue": "media"} for _ in range(2)])
        app.store.claim(worker=worker, queues=["media"], limit=2)
    job, later = app.enqueue("work", queue="media"), app.enqueue("work", queue="media")
    told, behind = app.why(job.id), app.why(later.id)
    announce(app, queues=[], kinds=["work"], worker="c", vitals=WorkerVitals(slots=1))
    free = app.why(job.id)
    app.enqueue("work", queue="other")
    app.store.claim(worker="c", queues=["other"])
    mixed = app.why(job.id)

    assert (told.code, told.slots, told.workers, told.since) == ("full", 4, 2, job.run_at)
    assert told.text.startswith("all 4 slots of queue 'media' on 2 live workers are taken; it is")
    assert (behind.code, behind.ahead) == ("behind", Count(1))
    assert behind.text.endswith("; and all 4 slots of queue 'media' on 2 live workers are taken")
    assert free.code == "next"
    assert (mixed.code, mixed.slots, mixed.workers) == ("full", 5, 3)
    assert mixed.text.startswith("all 5 slots of 3 live workers are taken")


def test_full_slots_are_not_counted_for_a_tenant(app):
    """One who is bound to a tenant learns that no slot is free, not how much runs for others."""
    announce(app, queues=[], kinds=["work"], vitals=WorkerVitals(slots=1))
    app.enqueue("work", tenant="other")
    app.store.claim(worker="w", queues=["default"])
    job = app.enqueue("work", tenant="acme")
    told = app.store.run(why(job.id, tenant="acme"))

    assert (told.code, told.slots, told.workers) == ("full", None, None)
    assert told.text.startswith("no slot is free; it is next of its tenant")


def test_a_job_that_may_not_have_begun_is_told(app):
    """Its worker holds more jobs than it has slots, of its queue or in all."""
    vitals = WorkerVitals(slots=2, queue_slots={"media": QueueSlots(slots=1)})
    announce(app, queues=[], kinds=["work"], vitals=vitals)
    jobs = [app.enqueue("work", queue=queue) for queue in ("media", "other", "media")]
    texts = []
    for job in jobs:
        claim_ahead(app, job.queue)
        texts.append(app.why(job.id).text)
    texts.append(app.why(jobs[1].id).text)

    assert ["may not have begun" in text for text in texts] == [False, False, True, True]
    assert "it holds 2 jobs of this queue for 1 slots" in texts[2]
    assert "it holds 3 jobs for 2 slots" in texts[3]


def test_a_run_that_is_known_to_have_begun_is_told(app):
    """However many jobs its worker holds. Nothing is said of a run that is not marked."""
    announce(app, queues=[], kinds=["work"], vitals=WorkerVitals(slots=1))
    jobs = [app.enqueue("work") for _ in range(2)]
    leases = claim_ahead(app, "default", limit=2)
    before = [app.why(job.id).text for job in jobs]
    begin(app, leases[:1])
    after = [app.why(job.id).text for job in jobs]

    assert [text.startswith("worker w holds it") for text in before] == [True, True]
    assert after[0].startswith("worker w runs it and holds it until ")
    assert "may not have begun" not in after[0]
    assert after[1] == before[1]


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_run_that_is_known_not_to_have_begun_is_told(app, tenant):
    """Runs of jobs that run at most once are marked before their handler is called."""
    job = app.enqueue("work", tenant=tenant, max_attempts=1)
    leases = claim_ahead(app, "default")
    before = app.store.run(why(job.id, tenant=tenant)).text
    begin(app, leases)
    after = app.store.run(why(job.id, tenant=tenant)).text

    assert before.endswith(" UTC, and has not begun to run it")
    assert after.startswith("worker w runs it and holds it until ")


def test_a_count_is_bounded(app, monkeypatch):
    """Beyond the bound it is no longer exact, and no more is read."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    announce(app, queues=[], kinds=[])
    job = app.enqueue("work")
    app.enqueue_many([{"kind": f"kind-{n % 50}", "priority": 5} for n in range(100)])
    told = app.why(job.id)

    assert (
        told.ahead,
        told.text.removeprefix("jobs are before it: "),
    ) == (Count(3, exact=False), "more than 3 of a higher priority")


def test_it_has_one_shape(app):
    """Every answer has the same fields, also as JSON, with times as everywhere."""
    job = app.enqueue("work", delay=60)
    document = msgspec.json.decode(msgspec.json.encode(app.why(job.id)))

    assert list(rowlock.Why.__struct_fields__) == list(document)
    assert document["until"].endswith("Z")
    assert (document["code"], document["ahead"], document["nearest"]) == ("not_due", None, [])


@pytest.mark.asyncio
async def test_an_unknown_job_is_not_found(app):
    """In both colours; and a known one is told in both."""
    job = await app.aenqueue("work")

    assert "no_worker" == (await app.awhy(job.id)).code == app.why(job.id).code
    with pytest.raises(rowlock.NotFound):
        await app.awhy(uuid.uuid4())
    with pytest.raises(rowlock.NotFound):
        app.why(uuid.uuid4())
    await app.aclose()

"""Dead jobs are grouped by what they died of, and a group is acted on as one."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.ids import new_id
from rowlock.job import ListedJob
from rowlock.lifecycle import Failed
from rowlock.store import Settlement
from rowlock.store.ops.audit import Actor
from rowlock.store.ops.bulk import Bulk, BulkAction, advance_bulk, get_bulk, selection, start_bulk
from rowlock.store.ops.dead import dead_groups
from rowlock.store.ops.manage import job_filter
from tests.store.jobs import start


def kill(store, count: int = 1, *, error: str = "OSError", message: str = "no", **options) -> str:
    """Jobs that die; the id of the last."""
    id = ""
    for _ in range(count):
        lease = start(store, **options)
        store.settle([Settlement(lease, Failed(error, message, permanent=True))])
        id = lease.id
    return id


def groups(store, **options):
    return store.run(dead_groups(**options)).groups


def test_what_died_of_the_same_is_one_group(store, clock):
    """With its number, its first and last time, and the last job; the newest failure first."""
    kill(store, 2, kind="send")
    clock.advance(60)
    last = kill(store, kind="send", message="other")
    clock.advance(60)
    kill(store, kind="send", error="ValueError")
    kill(store, kind="fetch", error="ValueError")
    newest, second, oldest = groups(store)

    assert {newest.kind, second.kind} == {"send", "fetch"}
    assert (
        oldest.kind, oldest.error, oldest.message, oldest.count.value,
    ) == ("send", "OSError", "other", 3)  # fmt: skip
    assert last == oldest.sample.id
    assert (oldest.last_at - oldest.first_at).total_seconds() == 60


def test_groups_of_some(store):
    """By kind, queue and tenant; another's are not counted."""
    kill(store, 2, queue="mail", tenant="acme")
    kill(store, 1, queue="shop", tenant="zoo")
    kill(store, 1, queue="shop", kind="other")

    assert sorted((g.count.value for g in groups(store)), reverse=True) == [3, 1]
    (acme,) = groups(store, tenant="acme")
    assert (acme.count.value, acme.sample.tenant) == (2, "acme")
    (zoo,) = groups(store, queue="shop", tenant="zoo")
    assert (zoo.count.value, zoo.sample.tenant) == (1, "zoo")
    assert groups(store, kind="none") == []


def test_counts_are_exact_to_a_bound(store, monkeypatch):
    """Beyond, at least so many; and so many groups."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 2)
    kill(store, 3)
    kill(store, 2, kind="other")
    counts = {group.kind: group.count for group in groups(store)}

    assert (counts["task"].value, counts["task"].exact) == (2, False)
    assert (counts["other"].value, counts["other"].exact) == (2, True)
    assert store.run(dead_groups(limit=1)).is_cut
    assert not store.run(dead_groups()).is_cut


def test_only_the_dead_are_in_groups(store):
    """Not those that wait for another attempt, or were cancelled, or were retried."""
    lease = start(store)
    store.settle([Settlement(lease, Failed("OSError", "no"))])
    store.retry(kill(store, kind="again"))

    assert groups(store) == []


def test_a_group_is_listed_and_retried(store):
    """By its fingerprint, and nothing else is."""
    kill(store, 3)
    other = kill(store, kind="other")
    (mark,) = [group.fingerprint for group in groups(store) if group.kind == "task"]
    chosen = job_filter(fingerprint=mark)

    assert len(store.list(chosen, state="dead").jobs) == 3
    assert store.retry_dead(chosen).retried == 3
    assert other == groups(store)[0].sample.id
    with pytest.raises(OptionInvalid):
        store.list(chosen)
    with pytest.raises(OptionInvalid):
        selection(BulkAction.CANCEL, None, chosen)


def test_a_rate_is_kept(store, clock):
    """At most so many a second, whoever takes the steps."""
    kill(store, 10)
    (group,) = groups(store)
    wanted = selection(BulkAction.RETRY, None, job_filter(fingerprint=group.fingerprint))
    bulk = store.run(start_bulk(wanted, id=new_id(), expected=10, actor=Actor("ada"), per_second=4))
    assert isinstance(bulk, Bulk)
    done = []
    for _ in range(8):
        taken = store.run(advance_bulk(bulk.id))
        again = store.run(advance_bulk(bulk.id))
        if taken.is_more:
            assert again.is_more and 0 < again.wait_seconds <= 0.5
        done.append(store.run(get_bulk(bulk.id)).done)
        clock.advance(0.5)

    assert done == [2, 4, 6, 8, 10, 10, 10, 10]
    assert store.run(get_bulk(bulk.id)).finished_at is not None


def test_groups_read_nothing_large(store, monkeypatch):
    """A list of 500 groups would read a gigabyte of payloads, results and errors."""
    monkeypatch.setattr(config, "DEAD_SAMPLES_READ", 2)
    long = "x" * 30_000
    for number in range(5):
        trace = f'  File "/srv/shop/jobs{number}.py", line 1, in send\n'
        lease = start(store, kind=f"kind-{number}", payload='{"large": "payload"}')
        failed = Failed("OSError", long, long + "\n" + trace, permanent=True)
        store.settle([Settlement(lease, failed)])
    found = groups(store)

    assert {group.place for group in found} == {f"shop/jobs{number}.py send" for number in range(5)}
    assert {type(group.sample) for group in found} == {ListedJob}
    assert all(len(group.message) <= 4 * 1024 for group in found)

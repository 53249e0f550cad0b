"""The audit: a line for every deed, in the transaction that did it, and none for what failed."""

from __future__ import annotations

import pytest

from rowlock.errors import InvalidTransition, OptionInvalid
from rowlock.store.ops.audit import Actor, Deed, audited, list_audit
from rowlock.store.ops.manage import cancel, delete, pause
from tests.store.jobs import enqueue, start

ADA = Actor("ada", token_id="t1")


def cancelled(store, id: str, actor: Actor = ADA) -> None:
    store.run(
        audited(
            cancel(id),
            Deed(actor, "job.cancel", id),
            detail=lambda answer: {"outcome": answer.outcome},
        )
    )


def test_a_deed_leaves_a_line(store):
    """Who, what, to what, when, and what came of it."""
    job = enqueue(store)
    cancelled(store, job.id)
    (entry,) = store.run(list_audit()).entries

    assert (entry.actor, entry.token_id, entry.tenant) == ("ada", "t1", None)
    assert (entry.action, entry.target) == ("job.cancel", job.id)
    assert entry.detail == {"outcome": "cancelled"}


def test_long_names_are_whole(store):
    """A name of 200 characters in any language is not cut."""
    name = "株" * 200
    store.run(audited(pause(name), Deed(Actor(name), "queue.pause", name)))
    (entry,) = store.run(list_audit()).entries

    assert (entry.actor, entry.target) == (name, name)


def test_what_failed_leaves_none(store):
    """A refused deed was not done."""
    lease = start(store)
    with pytest.raises(InvalidTransition):
        store.run(audited(delete(lease.id), Deed(ADA, "job.delete", lease.id)))

    assert store.run(list_audit()).entries == []


def test_lines_are_paged_newest_first(store):
    """A page's `next` leads on, to the end."""
    ids = [enqueue(store).id for _ in range(5)]
    for id in ids:
        cancelled(store, id)
    seen, cursor = [], None
    while True:
        page = store.run(list_audit(limit=2, cursor=cursor))
        seen += [entry.target for entry in page.entries]
        if (cursor := page.next) is None:
            break

    assert ids[::-1] == seen


def test_lines_of_a_tenant_and_of_a_target(store):
    """A tenant sees what was done in its name; a target what was done to it."""
    ours, theirs = enqueue(store, tenant="acme"), enqueue(store, tenant="zoo")
    cancelled(store, ours.id, Actor("bea", tenant="acme"))
    cancelled(store, theirs.id, Actor("cy", tenant="zoo"))
    cancelled(store, ours.id)

    def seen(**asked):
        return [(entry.actor, entry.target) for entry in store.run(list_audit(**asked)).entries]

    assert seen(tenant="acme") == [("bea", ours.id)]
    assert seen(target=ours.id) == [("ada", ours.id), ("bea", ours.id)]
    assert seen(target=ours.id, tenant="acme") == [("bea", ours.id)]
    assert seen(target=theirs.id, tenant="acme") == []


def test_old_lines_are_removed(store, clock):
    """By the same rounds that remove old jobs."""
    store.run(audited(pause("a"), Deed(ADA, "queue.pause", "a")))
    clock.advance(89 * 86_400)
    store.run(audited(pause("b"), Deed(ADA, "queue.pause", "b")))
    clock.advance(2 * 86_400)
    store.prune()

    assert [entry.target for entry in store.run(list_audit()).entries] == ["b"]


def test_a_bad_page_is_refused():
    """A cursor is one that a page gave."""
    for wrong in ({"limit": 0}, {"cursor": "x"}):
        with pytest.raises(OptionInvalid):
            list_audit(**wrong)

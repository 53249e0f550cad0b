"""First answers: stored with the jobs, kept for a day, removed in bounded batches."""

from __future__ import annotations

from rowlock import config
from rowlock.filters import JobFilter
from rowlock.store import options
from rowlock.store.ops.enqueue import enqueue
from rowlock.store.ops.idempotency import FirstAnswer, KeyedRequest, KeyReused, enqueue_once
from rowlock.store.ops.move import page


def ask(store, key: str = "k", *, content: bytes = b"one", answer: str = "first"):
    """Enqueue a job, with an answer that is easily told from others."""
    request = KeyedRequest.of(key, tenant=None, content=content)
    new = options.new_job(kind="task", payload="{}")
    return store.run(enqueue_once(enqueue([new]), request, answer=lambda _: answer))


def test_an_answer_is_found_again(store):
    """It is the first one, whatever the second would have been."""
    (made,) = ask(store)
    again = ask(store, answer="second")
    other = ask(store, content=b"two")

    assert made.created
    assert again == FirstAnswer("first")
    assert other == KeyReused()
    assert [job.id for job in store.list(JobFilter())] == [made.id]


def test_an_answer_is_kept_for_a_day(store, clock):
    """Then the key is free, whether the janitor has passed or not."""
    ask(store)
    clock.advance(config.IDEMPOTENCY_KEEP_SECONDS - 1)
    within = ask(store, answer="second")
    clock.advance(1)
    (after,) = ask(store, content=b"two", answer="third")

    assert within == FirstAnswer("first")
    assert after.created
    assert ask(store, content=b"two") == FirstAnswer("third")


def test_old_answers_are_removed(store, clock):
    """In batches, all of them, and no newer ones."""
    for number in range(5):
        ask(store, f"old-{number}")
    clock.advance(config.IDEMPOTENCY_KEEP_SECONDS)
    ask(store, "new")
    store.prune(batch_rows=2)

    assert len(store.run(page("first_answer", after=None, limit=10))) == 1
    assert ask(store, "new") == FirstAnswer("first")

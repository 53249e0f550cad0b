"""The doorbell's thread: it ends when it is told to, and only then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rowlock.store.postgres.bell import Bell, news_text, read_news
from rowlock.store.steps import News

WAIT_SECONDS = 60.0


@contextmanager
def closed_meanwhile(bell: Bell) -> Iterator[None]:
    """In the block, another thread is closing the bell, and waits for what it rings."""
    closer = threading.Thread(target=bell.close, daemon=True)
    closer.start()
    deadline = time.monotonic() + WAIT_SECONDS
    while bell._thread is not None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    yield
    closer.join(WAIT_SECONDS)
    assert not closer.is_alive()


def test_a_bell_that_is_rung_while_it_is_closed():
    """Who closes it does not wait for those who ring after that; they are heard, too."""
    is_ringing, may_ring = threading.Event(), threading.Event()
    rung: list[list[str]] = []

    def notify(queues: list[str]) -> None:
        is_ringing.set()
        assert may_ring.wait(WAIT_SECONDS)
        rung.append(queues)

    bell = Bell(notify)
    bell.ring(["first"])
    assert is_ringing.wait(WAIT_SECONDS)
    with closed_meanwhile(bell):
        bell.ring(["second"])
        may_ring.set()
    bell.close()

    assert sorted(rung) == [["first"], ["second"]]


def test_a_bell_that_failed_is_rung_again(caplog):
    """Whatever the error was: it is told, and the next ring is heard."""
    rung: list[list[str]] = []
    failed = threading.Event()

    def notify(queues: list[str]) -> None:
        if not failed.is_set():
            failed.set()
            raise PermissionError("not for you")
        rung.append(queues)

    bell = Bell(notify)
    bell.ring(["first"])
    assert failed.wait(WAIT_SECONDS)
    bell.ring(["second"])
    bell.close()

    assert rung == [["second"]]
    assert "not for you" in caplog.text


def test_a_bell_without_a_thread(monkeypatch, caplog):
    """Where no thread can be started, nothing is raised: what was rung for is committed."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    rung: list[list[str]] = []
    bell = Bell(rung.append)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        bell.ring(["first"])
        bell.close()
    bell.ring(["second"])
    bell.close()

    assert "can't start new thread" in caplog.text
    assert rung == [["first", "second"]]


def test_a_bell_that_is_rung_inside_a_ring():
    """As by a signal's handler that enqueues: neither waits for the other."""
    rung: list[str] = []
    bell = Bell(rung.extend)

    def interrupted() -> Iterator[str]:
        bell.ring(["inner"])
        yield "outer"

    ringing = threading.Thread(target=lambda: bell.ring(interrupted()), daemon=True)
    ringing.start()
    ringing.join(WAIT_SECONDS)
    assert not ringing.is_alive()
    bell.close()

    assert sorted(rung) == ["inner", "outer"]


def test_the_first_of_a_moment_rings_by_itself():
    """The second only reports its news, of which the bell's thread takes care."""
    rung: list[str] = []
    bell = Bell(rung.extend)

    first, second = bell.takes_turn("mail"), bell.takes_turn("mail")
    bell.ring(["mail"])
    bell.close()

    assert (first, second, rung) == (True, False, ["mail"])


def test_queues_have_turns_of_their_own():
    """A ring for one of them leaves the others their turn."""
    bell = Bell(lambda queues: None)

    turns = [bell.takes_turn(queue) for queue in ("mail", "images", "mail")]

    assert turns == [True, True, False]


def test_a_turn_takes_pending_news_with_it(monkeypatch):
    """An enqueue that rings by itself rings for those before it, too."""
    monkeypatch.setattr("rowlock.store.postgres.bell._THREAD_SECONDS", 0.5)
    rung: list[str] = []
    bell = Bell(rung.extend)
    bell.takes_turn("mail")
    bell.ring(["mail"])
    bell._rung_at["mail"] -= 0.1

    is_turn = bell.takes_turn("mail")
    bell.close()

    assert (is_turn, rung) == (True, [])


@pytest.mark.parametrize(
    ("news", "read"),
    [
        (News("mail"), News("mail")),
        (News("mail", -3, "send"), News("mail", -3, "send")),
        (News("mail", 0, "a\x1fb"), News("mail", 0, "a\x1fb")),
        (News("m\x1fail", 0, "send"), News("m\x1fail")),
        (News("\x1fmail", 0, "send"), News("")),
        (News("\N{ROWBOAT}" * 200, 0, "send"), News("")),
        (News("mail", 0, "\N{ROWBOAT}" * 200), News("mail")),
    ],
)
def test_news_survive_their_notification(news: News, read: News):
    """What can't be sent is left out: a lane, or the name of a queue."""
    assert read_news(news_text(news)) == read

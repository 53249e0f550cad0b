"""The judge on workflows: who ran too early, was left waiting, or was released twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rowlock.chaos.flow_rules import STUCK
from rowlock.chaos.journal import Word
from rowlock.chaos.witness import What
from tests.chaos.history import History


def after_success(history: History) -> None:
    history.make_flow()
    history.run("a")
    history.finish("a")
    history.note(What.RELEASED, "b")
    history.run("b")
    history.finish("b")


def after_a_death(history: History) -> None:
    history.make_flow("run")
    history.die("a")
    history.run("b")
    history.finish("b")


def cancelled_with_its_parent(history: History) -> None:
    history.make_flow("cancel")
    history.die("a")
    history.cancel_unrun("b")


def not_needed(history: History) -> None:
    history.make_flow("dead")
    history.run("a")
    history.finish("a")
    history.cancel_unrun("b")


def cancelled_because_it_is_stuck(history: History) -> None:
    history.make_flow("wait")
    history.die("a")
    history.say(Word.CANCEL_FLOW, "flow", rest=STUCK)
    history.cancel_unrun("b")


def grown(history: History) -> None:
    """The job adds one, which ends before the other begins."""
    history.make_flow()
    history.claim("a")
    history.start("a")
    history.say(Word.FOLLOW, "c", 1, "a")
    history.say(Word.SINK, "c", 1, "a")
    history.end("a")
    history.insert("c")
    history.finish("a")
    history.run("c")
    history.finish("c")
    history.run("b")
    history.finish("b")


def before_its_parent(history: History) -> None:
    history.make_flow()
    history.run("a")
    history.run("b")
    history.finish("a")
    history.finish("b")


def in_spite_of_a_death(history: History) -> None:
    history.make_flow("wait")
    history.die("a")
    history.run("b")
    history.finish("b")


def before_what_was_added(history: History) -> None:
    history.make_flow()
    history.claim("a")
    history.start("a")
    history.say(Word.FOLLOW, "c", 1, "a")
    history.say(Word.SINK, "c", 1, "a")
    history.end("a")
    history.insert("c")
    history.finish("a")
    history.run("b")
    history.finish("b")
    history.run("c")
    history.finish("c")


def released_twice(history: History) -> None:
    after_success(history)
    history.note(What.RELEASED, "b")


def counted_twice(history: History) -> None:
    after_success(history)
    history.note(What.RECOUNTED, "b")


def left_waiting(history: History) -> None:
    """Its workflow looked stuck, though its parent had succeeded."""
    history.make_flow("wait")
    history.run("a")
    history.finish("a")
    history.say(Word.CANCEL_FLOW, "flow", rest=STUCK)
    history.cancel_unrun("b")


GOOD = [after_success, after_a_death, cancelled_with_its_parent, not_needed, grown]
GOOD += [cancelled_because_it_is_stuck]
EARLY = [before_its_parent, in_spite_of_a_death, before_what_was_added]
BAD = [(23, each) for each in (*EARLY, released_twice, counted_twice)] + [(24, left_waiting)]


@pytest.mark.parametrize("write", GOOD, ids=lambda write: write.__name__)
def test_a_good_workflow_is_good(write: Callable[[History], None]):
    """Nothing is found where nothing is wrong."""
    history = History()
    write(history)

    assert history.judge().findings.lines() == []


@pytest.mark.parametrize(("number", "write"), BAD, ids=lambda each: getattr(each, "__name__", each))
def test_a_broken_workflow_is_told(number: int, write: Callable[[History], None]):
    """By its number."""
    history = History()
    write(history)

    assert number in history.judge().findings.counts

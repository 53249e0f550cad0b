"""Exceptions put into a thread: in the user's function, and nowhere else."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time

import pytest

from rowlock.interrupts import Guard, call_within, shielded
from tests.worker.waiting import wait_until

ROUNDS = 4_000


class Stop(BaseException):
    """What is raised in the functions of these tests."""


def never() -> bool:
    return False


def spin(seconds: float) -> str:
    """Keep busy for some time, in Python."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return "done"


def guarded() -> Guard:
    return Guard(is_spared=never)


def test_a_function_is_interrupted():
    """It hears of it in its own lines, and may clean up."""
    guard, begun, cleaned = guarded(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            spin(60)
        finally:
            cleaned.set()

    def stop() -> None:
        begun.wait(60)
        guard.interrupt(Stop)

    other = threading.Thread(target=stop)
    other.start()
    with pytest.raises(Stop):
        guard.call(work, {})
    other.join()

    assert cleaned.is_set()


def test_one_that_has_not_begun_never_does():
    """An interruption before the first line: the function is not called."""
    guard, called = guarded(), threading.Event()
    guard.interrupt(Stop)

    with pytest.raises(Stop):
        guard.call(called.set, {})
    assert not called.is_set()


def test_one_that_has_ended_is_left_alone():
    """After its end nothing is raised, and what it returned stays."""
    guard = guarded()
    returned = guard.call(spin, {"seconds": 0.0})
    guard.interrupt(Stop)

    assert returned == "done"
    assert spin(0.01) == "done"


def test_one_that_is_spared_is_left_alone():
    """Its work is committed, say: it goes on to its end."""
    guard = Guard(is_spared=lambda: True)

    def work() -> str:
        guard.interrupt(Stop)
        return spin(0.05)

    assert guard.call(work, {}) == "done"


def test_only_the_first_counts():
    """Who catches it is not interrupted a second time."""
    guard, caught = guarded(), []

    def work() -> str:
        for kind in (Stop, KeyError):
            try:
                interrupt_from_elsewhere(guard, kind)
                spin(0.05)
            except Stop as stop:
                caught.append(stop)
        return "done"

    assert guard.call(work, {}) == "done"
    assert [type(each) for each in caught] == [Stop]


def interrupt_from_elsewhere(guard: Guard, kind: type[BaseException]) -> None:
    other = threading.Thread(target=guard.interrupt, args=(kind,))
    other.start()
    other.join()


def test_our_own_lines_are_finished_first():
    """Behind a shield, however deep, it waits; at the end of that it is raised."""
    guard, reached = guarded(), []

    def work() -> None:
        with shielded():
            with shielded():
                interrupt_from_elsewhere(guard, Stop)
                spin(0.05)
                reached.append("inner")
            spin(0.05)
            reached.append("outer")
        reached.append("beyond")

    with pytest.raises(Stop):
        guard.call(work, {})
    assert reached == ["inner", "outer"]


def test_a_shield_that_must_not_raise():
    """The end of such a block is not disturbed; the exception comes a moment later."""
    guard, reached = guarded(), []

    def work() -> None:
        with shielded(raises=False):
            interrupt_from_elsewhere(guard, Stop)
            spin(0.05)
        reached.append("beyond")
        spin(60)

    with pytest.raises(Stop):
        guard.call(work, {})
    assert reached in ([], ["beyond"])


def test_an_error_of_our_own_lines_goes_first():
    """A shield that ends by an error does not replace it."""
    guard = guarded()

    def work() -> None:
        with shielded():
            interrupt_from_elsewhere(guard, Stop)
            raise KeyError

    with pytest.raises((KeyError, Stop)) as raised:
        guard.call(work, {})
    chain = raised.value if isinstance(raised.value, KeyError) else raised.value.__context__
    assert isinstance(chain, KeyError)


def test_a_line_of_the_log_is_written_to_its_end():
    """Inside logging it waits: a handler's lock that stays taken would stop every thread."""
    guard, lines = guarded(), []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            interrupt_from_elsewhere(guard, Stop)
            spin(0.1)
            lines.append(record.getMessage())

    logger = logging.getLogger("tests.slow")
    logger.addHandler(Slow())

    def work() -> None:
        logger.warning("hello")
        spin(60)

    with pytest.raises(Stop):
        guard.call(work, {})
    assert lines == ["hello"]


@pytest.fixture
def eager_switches():
    """Threads take turns after every few lines, so that each meets the others everywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# Inside a callback of the garbage collector, the interpreter reports it and drops it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("eager_switches")
def test_it_never_comes_late():
    """Thousands of short functions in one thread, whose ends race with their interruptions.

    Each is interrupted by an exception of its own: one that surfaces after its function has
    returned, or in the next one, is found out.
    """
    chance = random.Random(7)
    asked: list[tuple[Guard, type[BaseException]]] = []
    is_over = threading.Event()

    def interrupt_all() -> None:
        while not is_over.is_set():
            if asked:
                guard, kind = asked.pop()
                spin(chance.uniform(0.0, 0.000_1))
                guard.interrupt(kind)

    interrupters = [threading.Thread(target=interrupt_all) for _ in range(2)]
    for thread in interrupters:
        thread.start()
    interrupted, returned, astray = 0, 0, []
    try:
        for number in range(ROUNDS):
            kind = type(f"Stop{number}", (BaseException,), {})
            guard = guarded()
            asked.append((guard, kind))
            try:
                result = guard.call(work_in_turns, {"seconds": chance.uniform(0.0, 0.000_2)})
                returned += result == "done"
            except kind:
                interrupted += 1
            except BaseException as error:  # noqa: BLE001  # of another call
                astray.append(error)
            # Lines of ours, in which nothing may surface.
            try:
                spin(0.000_05)
            except BaseException as error:  # noqa: BLE001  # that it does is what is looked for
                astray.append(error)
    finally:
        is_over.set()
        for thread in interrupters:
            thread.join()

    assert astray == []
    assert interrupted + returned == ROUNDS
    assert interrupted
    assert returned


def work_in_turns(seconds: float) -> str:
    """Partly in lines of its own, partly in ours."""
    with shielded():
        spin(seconds / 4)
    spin(seconds / 4)
    with shielded(raises=False):
        spin(seconds / 4)
    return spin(seconds / 4)


def test_what_a_shield_covers_is_whole():
    """Two steps behind a shield are both done or none, whenever the interruption comes."""
    chance, halves = random.Random(8), 0
    for _ in range(300):
        guard, steps = guarded(), []

        def work(steps: list[str] = steps) -> None:
            while True:
                with shielded():
                    steps.append("first")
                    spin(0.000_02)
                    steps.append("second")

        timer = threading.Timer(chance.uniform(0.0, 0.002), guard.interrupt, args=(Stop,))
        timer.start()
        with pytest.raises(Stop):
            guard.call(work, {})
        timer.join()
        halves += len(steps) % 2

    assert halves == 0
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "rowlock-interrupt"])


class Late(Exception):
    """The limit of these functions has passed."""


def catches() -> str:
    try:
        return spin(60)
    except Late:
        return "caught"


@pytest.mark.parametrize("is_guarded", [True, False])
def test_a_call_within_a_limit(is_guarded: bool):
    """The function may catch what is raised in it; with a guard around it, and without one."""
    guard = guarded()

    def limited(seconds: float, function: object) -> object:
        return call_within(seconds, Late, function)  # type: ignore[arg-type]  # any of these

    def called(seconds: float, function: object) -> object:
        if is_guarded:
            return guard.call(limited, {"seconds": seconds, "function": function})
        return limited(seconds, function)

    assert called(3600, lambda: spin(0.0)) == "done"
    guard = guarded()
    assert called(0.01, catches) == "caught"
    guard = guarded()
    with pytest.raises(Late):
        called(0.01, lambda: spin(60))
    assert spin(0.01) == "done"

"""Generated programs do the same on the model, on SQLite and on PostgreSQL, step by step."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.model.conftest import Bench
from tests.model.model import Model, New, NotAllowed
from tests.model.program import (
    LIMITS,
    Advance,
    Ask,
    Claim,
    DeclareLimits,
    End,
    Enqueue,
    Nothing,
    Operation,
    Program,
    Recover,
    Runner,
    Settle,
    differences,
    limited_programs,
    programs,
    text_of,
)
from tests.model.regressions import REGRESSIONS
from tests.model.subject import StoreSubject
from tests.mutants import MUTANTS

PROGRAMS = int(os.environ.get("ROWLOCK_MODEL_PROGRAMS", "30"))
STEPS = int(os.environ.get("ROWLOCK_MODEL_STEPS", "40"))
# All is looked at after so many steps, not after each: a difference that shows late shrinks too.
GLANCE_EVERY = 8
SHOWN = 12
_MOMENT = Advance(0.001)

in_bulk = settings(
    max_examples=PROGRAMS,
    deadline=None,
    derandomize=False,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Tally:
    """How much was compared, until the first difference: what follows is its shrinking."""

    programs: int = 0
    steps: int = 0
    differences: int = 0

    def count_program(self) -> None:
        self.programs += not self.differences

    def count_step(self) -> None:
        self.steps += not self.differences

    def __str__(self) -> str:
        return f"{self.programs} programs, {self.steps} steps, {self.differences} differences"


def compare(program: Program, bench: Bench, tally: Tally, *, is_async: dict[str, bool]) -> None:
    """Run a program everywhere; raise at the first step that is not everywhere the same."""
    bench.clear()
    expected = Runner(Model(start=bench.clock.now_us()))
    actual = {name: runner_on(bench, name, is_async=is_async[name]) for name in bench.stores}
    tally.count_program()
    done = [operation for operation in program if operation != Nothing()]
    for number, operation in enumerate(done, start=1):
        tally.count_step()
        if isinstance(operation, Claim):
            check_claim(operation, expected, actual)
        else:
            check(partial(Runner.step, operation=operation), expected, actual)
        if isinstance(operation, Advance):
            bench.clock.advance(operation.seconds)
        if isinstance(operation, Enqueue | Settle):
            # On SQLite a place in an order is a time: two enqueues have two.
            check(partial(Runner.step, operation=_MOMENT), expected, actual)
            bench.clock.advance(_MOMENT.seconds)
        if number % GLANCE_EVERY == 0:
            check(Runner.glance, expected, actual)
    check(Runner.observe, expected, actual)
    for operation in expected.epilogue():
        check(partial(Runner.step, operation=operation), expected, actual)


def check_claim(operation: Claim, expected: Runner, actual: dict[str, Runner]) -> None:
    """Claim from the stores first: under limits, the model says whether that was allowed."""
    answers = {name: runner.step(operation) for name, runner in actual.items()}
    assert isinstance(expected.subject, Model)
    first = next(iter(answers.values()))
    expected.subject.claimed = [view["number"] for view in first if isinstance(view, dict)]
    try:
        wanted = expected.step(operation)
    except NotAllowed as error:
        raise DifferenceFound(str(error)) from error
    found = [each for name in answers for each in differences(wanted, answers[name], name)]
    if found:
        raise DifferenceFound("\n".join(found[:SHOWN]))


def runner_on(bench: Bench, name: str, *, is_async: bool) -> Runner:
    subject = StoreSubject(bench.stores[name], bench.clock, bench.loop if is_async else None)
    return Runner(subject, subject.number)


class DifferenceFound(AssertionError):
    """A store did not do what the model says."""


def check(look: Callable[[Runner], Any], expected: Runner, actual: dict[str, Runner]) -> None:
    wanted = look(expected)
    for name, runner in actual.items():
        found = list(differences(wanted, look(runner), name))
        if found:
            raise DifferenceFound("\n".join(found[:SHOWN]))


def run_bulk(bench: Bench, tally: Tally, drawn: SearchStrategy[list[Operation]]) -> None:
    @in_bulk
    @given(program=drawn, colours=st.tuples(st.booleans(), st.booleans()))
    def compare_one(program: Program, colours: tuple[bool, bool]) -> None:
        is_async = dict(zip(bench.stores, colours, strict=True))
        try:
            compare(program, bench, tally, is_async=is_async)
        except DifferenceFound as difference:
            tally.differences = 1
            difference.add_note(f"async: {is_async}\n{text_of(program)}")
            raise

    compare_one()


@pytest.mark.long
@pytest.mark.timeout(max(300, PROGRAMS))
def test_programs_do_the_same_everywhere(bench: Bench, record_property: Any) -> None:
    """After each step of a generated program, both stores answer and look as the model says."""
    tally = Tally()
    try:
        run_bulk(bench, tally, programs(STEPS))
    finally:
        record_property("model", str(tally))


@pytest.mark.long
@pytest.mark.timeout(max(300, PROGRAMS))
def test_programs_with_limits_do_the_same_everywhere(bench: Bench, record_property: Any) -> None:
    """No claim exceeds a limit, starts a job too early or out of order, or leaves one out."""
    tally = Tally()
    try:
        run_bulk(bench, tally, limited_programs(STEPS))
    finally:
        record_property("model", f"with limits: {tally}")


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
@pytest.mark.parametrize("program", REGRESSIONS.values(), ids=REGRESSIONS)
def test_what_went_wrong_stays_right(bench: Bench, program: Program, is_async: bool) -> None:
    """A program that once found a difference finds none."""
    compare(program, bench, Tally(), is_async=dict.fromkeys(bench.stores, is_async))


CLAIM_THREE = [Enqueue((Ask(New()),) * 3), Claim("w1", ("q",), limit=3)]


@pytest.mark.parametrize("mutant", ["recovery misses claims", "claim forgotten early"])
def test_a_hidden_lease_is_found(bench: Bench, mutant: str) -> None:
    """A planted bug that hides leases from recovery makes PostgreSQL differ from the model."""
    program = [*CLAIM_THREE, Settle((End(0, "succeed"),)), Advance(31), Recover()]
    is_async = dict.fromkeys(bench.stores, False)
    compare(program, bench, Tally(), is_async=is_async)

    with MUTANTS[mutant](), pytest.raises(DifferenceFound, match="postgres"):
        compare(program, bench, Tally(), is_async=is_async)


def _limited(name: str, *keys: str) -> Enqueue:
    """One job for each key."""
    is_ordered = LIMITS[name].is_ordered
    news = [New(limit=name, limit_key=key, is_ordered=is_ordered) for key in keys]
    return Enqueue(tuple(Ask(new) for new in news))


def _declared(name: str, *rest: Operation) -> Program:
    return [DeclareLimits((name,)), *rest]


_CLAIM_ONE = Claim("w1", ("q",))
# By the planted bug that a program finds.
LIMIT_PROGRAMS: dict[str, Program] = {
    "retry outside its room": _declared(
        "at once",
        _limited("at once", "j", "j", "j"),
        Claim("w1", ("q",), limit=3, seconds=1000),
        Settle((End(0, "release"),)),
        _limited("at once", "j"),
        Claim("w1", ("q",), limit=3),
        Claim("w2", ("q",), limit=3),
    ),
    "walk never wraps": _declared(
        "fair", _limited("fair", "j", "k", "l"), *[_CLAIM_ONE] * 2, _limited("fair", "j"),
        *[_CLAIM_ONE] * 2,
    ),
    "rate not moved": _declared("rate", _limited("rate", "j", "j"), _CLAIM_ONE, _CLAIM_ONE),
}  # fmt: skip


@pytest.mark.parametrize("mutant", LIMIT_PROGRAMS)
def test_a_planted_bug_in_limits_is_found(bench: Bench, mutant: str) -> None:
    """A claim that exceeds a limit, or leaves out what could start, is no claim of the model."""
    program = LIMIT_PROGRAMS[mutant]
    is_async = dict.fromkeys(bench.stores, False)
    compare(program, bench, Tally(), is_async=is_async)

    with MUTANTS[mutant](), pytest.raises(DifferenceFound):
        compare(program, bench, Tally(), is_async=is_async)

"""What becomes of a run: the whole table of outcome, flag and attempts, without a database."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock import config
from rowlock.job import DEFAULT_POLICY, JobState, Policy
from rowlock.lifecycle import (
    CancelSeen,
    Crashed,
    Failed,
    Finish,
    Held,
    Interrupted,
    Lost,
    NotBegun,
    Outcome,
    Parked,
    Released,
    Return,
    Succeeded,
    Transition,
    decide,
)

NOW = 5_000_000
RUN_AT = 1_000_000
DAY = 86_400_000_000
FIXED = Policy(retry=["fixed", 7.0], keep=11, keep_dead=13)
HELD = Held(
    attempt=2, max_attempts=5, crashes=0, run_at=RUN_AT, cancel_requested=False, policy=FIXED
)
OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded('"r"'),
    "success without result": Succeeded(None, "too large"),
    "failure": Failed("E", "boom", "trace"),
    "failure with a delay": Failed("E", "boom", delay=3_000_000),
    "failure for good": Failed("E", "boom", permanent=True),
    "release": Released(),
    "release for later": Released(9_000_000),
    "not begun": NotBegun(),
    "not begun, for later": NotBegun(9_000_000),
    "interrupted": Interrupted("stopped"),
    "cancel": CancelSeen(),
    "cancel with a reason": CancelSeen("enough"),
    "lost": Lost("lease expired"),
    "parked": Parked("orphaned"),
    "crash among others": Crashed("signal 9"),
    "crash alone": Crashed("signal 9", alone=True),
}
SUCCESSES = {"success", "success without result"}
NONE = "none"

# Without the flag: outcome -> (attempts left, the last attempt), each as
# (state or None for a return, run_at, attempt, crashes, type of the new error).
BACK = None
TABLE = {
    "success": [("succeeded", None, None, 0, NONE)] * 2,
    "success without result": [("succeeded", None, None, 0, "ResultNotStored")] * 2,
    "failure": [(BACK, NOW + 7_000_000, 2, 0, "E"), ("dead", None, None, 0, "E")],
    "failure with a delay": [(BACK, NOW + 3_000_000, 2, 0, "E"), ("dead", None, None, 0, "E")],
    "failure for good": [("dead", None, None, 0, "E")] * 2,
    "release": [(BACK, RUN_AT, 1, 0, NONE), (BACK, RUN_AT, 4, 0, NONE)],
    "release for later": [(BACK, NOW + 9_000_000, 1, 0, NONE), (BACK, NOW + 9_000_000, 4, 0, NONE)],
    "not begun": [(BACK, RUN_AT, 1, 0, NONE), (BACK, RUN_AT, 4, 0, NONE)],
    "not begun, for later": [
        (BACK, NOW + 9_000_000, 1, 0, NONE),
        (BACK, NOW + 9_000_000, 4, 0, NONE),
    ],
    "interrupted": [(BACK, RUN_AT, 1, 0, "Interrupted"), (BACK, RUN_AT, 4, 0, "Interrupted")],
    "cancel": [("cancelled", None, None, 0, NONE)] * 2,
    "cancel with a reason": [("cancelled", None, None, 0, "Cancelled")] * 2,
    "lost": [(BACK, RUN_AT, 1, 0, "LeaseLost"), (BACK, RUN_AT, 4, 0, "LeaseLost")],
    "parked": [("dead", None, None, 0, "LeaseLost")] * 2,
    "crash among others": [(BACK, RUN_AT, 1, 1, "Crashed"), (BACK, RUN_AT, 4, 1, "Crashed")],
    "crash alone": [(BACK, RUN_AT, 2, 1, "Crashed"), ("dead", None, None, 1, "Crashed")],
}


def decided(held: Held, outcome: Outcome) -> Transition:
    return decide(held, outcome, now=NOW, chance=random.Random(1))


def summary(step: Transition) -> tuple[object, ...]:
    """A transition as a line of the table."""
    error = NONE if step.error is None else step.error.type
    if isinstance(step, Finish):
        return (step.state.value, None, None, step.crashes, error)
    return (None, step.run_at, step.attempt, step.crashes, error)


@pytest.mark.parametrize("name", OUTCOMES)
def test_without_the_flag(name: str):
    """Each outcome gives the table's transition, with attempts left and on the last one."""
    last = replace(HELD, attempt=5)

    assert TABLE[name] == [summary(decided(held, OUTCOMES[name])) for held in (HELD, last)]


@pytest.mark.parametrize("name", OUTCOMES)
@pytest.mark.parametrize("attempt", [1, 2, 5, 9])
def test_with_the_flag(name: str, attempt: int):
    """With the flag, every outcome but success ends cancelled, kept as its policy says."""
    step = decided(replace(HELD, attempt=attempt, cancel_requested=True), OUTCOMES[name])

    assert isinstance(step, Finish)
    expected = JobState.SUCCEEDED if name in SUCCESSES else JobState.CANCELLED
    assert (step.state, step.keep) == (expected, FIXED.keep)


@pytest.mark.parametrize("name", OUTCOMES)
def test_beyond_the_last_attempt(name: str):
    """An attempt beyond the maximum is treated as the last one, not as an error."""
    beyond = replace(HELD, attempt=9)
    ends = [step for step in (decided(beyond, OUTCOMES[name]),) if isinstance(step, Finish)]

    assert bool(ends) == (TABLE[name][1][0] is not None)


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_time_of_keeping(name: str):
    """Dead jobs are kept by the retention of the dead, all others by their own."""
    for held in (HELD, replace(HELD, attempt=5)):
        step = decided(held, OUTCOMES[name])
        if isinstance(step, Finish):
            assert step.keep == (13 if step.state is JobState.DEAD else 11)


def test_the_default_retention():
    """A day, thirty for the dead."""
    assert DEFAULT_POLICY.keep_for(JobState.SUCCEEDED) == DAY
    assert DEFAULT_POLICY.keep_for(JobState.CANCELLED) == DAY
    assert DEFAULT_POLICY.keep_for(JobState.DEAD) == 30 * DAY


def test_an_error_says_which_attempt_and_when():
    """The line in `errors` has the attempt, the time and all three texts."""
    error = decided(HELD, OUTCOMES["failure"]).error

    assert error is not None
    assert (
        error.attempt,
        error.time_us,
        error.type,
        error.message,
        error.traceback,
    ) == (2, NOW, "E", "boom", "trace")


def test_a_result_is_kept():
    """A success carries its result, and nothing else does."""
    assert [
        step.result
        for step in (decided(HELD, OUTCOMES["success"]), decided(HELD, CancelSeen()))
        if isinstance(step, Finish)
    ] == ['"r"', None]


@pytest.mark.parametrize(
    ("crashes", "max_crashes", "alone", "state", "kind"),
    [
        (0, 3, True, None, "Crashed"),
        (1, 3, True, None, "Crashed"),
        (2, 3, True, "dead", "Poison"),
        (5, 3, True, "dead", "Poison"),
        (0, 1, True, "dead", "Poison"),
        (2, 3, False, None, "Crashed"),
        (50, 3, False, None, "Crashed"),
        (0, 1, False, None, "Crashed"),
    ],
)
def test_poison(crashes: int, max_crashes: int, alone: bool, state: str | None, kind: str):
    """Only a crash alone, with crashes enough, is poison; a bystander never dies of it."""
    held = replace(HELD, crashes=crashes, policy=Policy(max_crashes=max_crashes))
    step = decided(held, Crashed("signal 9", alone=alone))

    assert (crashes + 1, kind) == (step.crashes, step.error and step.error.type)
    assert state == (step.state.value if isinstance(step, Finish) else None)


def test_a_bystander_has_an_attempt_left():
    """A job that crashed among others on its last attempt can still be claimed once more."""
    for max_attempts in (2, 20):
        held = replace(HELD, attempt=max_attempts, max_attempts=max_attempts)
        step = decided(held, Crashed("signal 9"))

        assert isinstance(step, Return)
        assert step.attempt + 1 <= max_attempts


CUT_SHORT = ["interrupted", "lost", "crash among others", "crash alone"]


@pytest.mark.parametrize("name", CUT_SHORT)
def test_at_most_once(name: str):
    """A job with one attempt that has begun is dead as interrupted, whatever cut it short."""
    held = replace(HELD, attempt=1, max_attempts=1, begun=True)
    step = decided(held, OUTCOMES[name])

    assert isinstance(step, Finish)
    assert step.error is not None
    assert (step.state, step.error.type) == (JobState.DEAD, "Interrupted")


@pytest.mark.parametrize("name", CUT_SHORT)
@pytest.mark.parametrize(
    "held",
    [replace(HELD, attempt=1, max_attempts=1), replace(HELD, attempt=3, losses=2)],
    ids=["at most once", "suspect"],
)
def test_what_is_known_not_to_have_begun(name: str, held: Held):
    """Without the mark, an at-most-once job and a suspect go back as if nothing had happened."""
    step = decided(held, OUTCOMES[name])

    assert isinstance(step, Return)
    assert (step.attempt, step.losses, step.interruptions) == (held.attempt - 1, held.losses, 0)
    assert (step.crashes, step.error) == (0, None)


@pytest.mark.parametrize("outcome", [Released(), NotBegun(), Failed("E", "boom")])
def test_at_most_once_by_its_own_word(outcome: Outcome):
    """A release gives an at-most-once job back; an exception of its own is its last."""
    step = decided(replace(HELD, attempt=1, max_attempts=1, begun=True), outcome)

    assert isinstance(step, Finish) == isinstance(outcome, Failed)


def test_losses_in_a_row():
    """A loss is noted and not counted; only what ends a run that began starts the row again."""
    lost = decided(replace(HELD, losses=1), Lost("lease expired"))
    steps = [
        decided(replace(HELD, losses=1), outcome)
        for outcome in (NotBegun(), Interrupted("stopped"), Released(), Failed("E", ""))
    ]

    assert isinstance(lost, Return)
    assert (lost.attempt, lost.losses, lost.interruptions) == (1, 2, 1)
    assert [step.losses for step in steps if isinstance(step, Return)] == [1, 1, 0, 0]


@pytest.mark.parametrize("name", OUTCOMES)
def test_quarantine(name: str):
    """A crash means a run alone next. Only a run that ends by itself proves that nothing is wrong,
    and whatever else cuts it short leaves the question open.
    """
    steps = [decided(replace(HELD, quarantined=before), OUTCOMES[name]) for before in (False, True)]
    returns = [step.quarantined for step in steps if isinstance(step, Return)]

    if name.startswith("crash"):
        assert returns == [True, True]
    elif name.startswith(("failure", "release")):
        assert set(returns) <= {False}
    else:
        assert returns in ([], [False, True])


def test_a_suspect_that_is_lost_alone():
    """The lost run of a suspect counts as an attempt and as a crash, and at last as poison."""
    held = replace(HELD, losses=2, begun=True)
    first = decided(held, Lost("lease expired"))
    last = decided(replace(held, crashes=2), Lost("lease expired"))
    used_up = decided(replace(held, attempt=5), Lost("lease expired"))

    assert isinstance(first, Return)
    assert (first.attempt, first.crashes, first.losses) == (2, 1, 2)
    assert summary(last) == ("dead", None, None, 3, "Poison")
    assert summary(used_up) == ("dead", None, None, 1, "LeaseLost")


def test_a_claim_that_is_the_beginning():
    """A lost lease of a run that is known to have begun counts as an attempt, and as no crash."""
    held = replace(HELD, begun=True)
    step = decided(held, Lost("lease expired"))

    assert isinstance(step, Return)
    assert (step.attempt, step.crashes, step.losses, step.interruptions) == (2, 0, 0, 0)
    assert summary(decided(replace(held, attempt=5), Lost("x")))[0] == "dead"


@pytest.mark.parametrize("name", ["interrupted", "lost", "crash among others"])
def test_interruptions_have_a_bound(name: str):
    """What isn't counted as an attempt is counted as an interruption, and there is a last one."""
    last = config.INTERRUPTIONS_MAX - 1
    steps = [
        decided(replace(HELD, interruptions=count), OUTCOMES[name]) for count in (last - 1, last)
    ]

    assert isinstance(steps[0], Return)
    assert steps[0].interruptions == last
    assert isinstance(steps[1], Finish)
    assert steps[1].state is JobState.DEAD


def test_a_release_never_counts_below_nothing():
    """A job given back before its first attempt was counted stays at none."""
    step = decided(replace(HELD, attempt=0), Released())

    assert isinstance(step, Return)
    assert step.attempt == 0


def test_backoff_is_of_this_attempt():
    """The stored policy is asked with the attempt that failed."""
    policy = Policy(retry=["exponential", 1.0, 1000.0])
    steps = [decided(replace(HELD, attempt=n, policy=policy), Failed("E", "")) for n in (1, 2, 3)]

    assert [step.run_at for step in steps if isinstance(step, Return)] == [
        NOW + 2_000_000,
        NOW + 4_000_000,
        NOW + 8_000_000,
    ]


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 1_000_000, "ü" * 100_000])
def test_error_texts_can_be_stored(text: str):
    """Whatever an outcome says, its line in `errors` is clean and bounded."""
    outcomes = [Failed(text, text, text), CancelSeen(text), Lost(text), Crashed(text), Parked(text)]
    for outcome in [*outcomes, Succeeded(None, text)]:
        error = decided(HELD, outcome).error

        assert error is not None
        for part in (error.type, error.message, error.traceback):
            assert "\0" not in part
            assert len(part.encode()) <= config.ERROR_BYTES_MAX


@given(
    held=st.builds(
        Held,
        attempt=st.integers(0, 30),
        max_attempts=st.integers(1, 20),
        crashes=st.integers(0, 10),
        run_at=st.just(RUN_AT),
        cancel_requested=st.booleans(),
        policy=st.just(DEFAULT_POLICY),
        begun=st.booleans(),
        losses=st.integers(0, 4),
        interruptions=st.integers(0, 25),
        quarantined=st.booleans(),
    ),
    outcome=st.sampled_from(sorted(OUTCOMES)),
    seed=st.integers(),
)
def test_invariants(held, outcome, seed):
    """A return is never in the past of its place, can run again, and counts nothing twice."""
    step = decide(held, OUTCOMES[outcome], now=NOW, chance=random.Random(seed))

    assert held.crashes <= step.crashes <= held.crashes + 1
    if isinstance(step, Return):
        assert not held.cancel_requested
        assert step.run_at >= RUN_AT
        assert step.attempt <= held.attempt
        assert step.attempt < held.max_attempts or not step.is_counted

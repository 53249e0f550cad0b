"""Delays are what the table says, within their bounds, whatever is asked or answered."""

from __future__ import annotations

import math
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock import codec, retry
from rowlock.config import DURATION_SECONDS_MAX
from rowlock.errors import OptionInvalid

SECONDS = st.floats(0, DURATION_SECONDS_MAX)
ATTEMPTS = st.integers(-5, 50) | st.integers(0, 10**12)
MAKERS = st.sampled_from([retry.jitter, retry.exponential, retry.doubling])


@given(MAKERS, SECONDS, SECONDS, ATTEMPTS, st.integers())
def test_policies_are_bounded(make, one, other, attempt, seed):
    """Any policy answers any attempt with a delay between zero and its cap."""
    policy = make(min(one, other), max(one, other))
    delay = policy(attempt, ValueError(), random=Random(seed))

    assert 0 <= delay <= max(one, other)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (retry.exponential(), [1, 2, 4, 8, 16]),
        (retry.doubling(), [60, 60, 120, 240, 480, 960, 1920, 3600, 3600]),
        (retry.fixed(7), [7, 7, 7]),
    ],
)
def test_delays_are_the_documented_ones(policy, expected):
    """After attempts 0, 1, 2 ... the delays are those of the table."""
    assert [policy(attempt) for attempt in range(len(expected))] == expected


def test_a_million_attempts_reach_the_cap():
    """Exponential growth stops at the cap without overflow."""
    assert retry.exponential()(1_000_000) == 2**20
    assert retry.doubling()(1_000_000) == 3600
    assert 5400 <= retry.jitter()(1_000_000) <= 10_800


@given(st.integers(), st.integers(-2, 100))
def test_jitter_is_the_documented_range(seed, attempt):
    """Jitter lies between half of base * 3**n and all of it, at most the cap, at least the base."""
    longest = min(10_800.0, 3.0 ** max(0, attempt))
    delay = retry.jitter()(attempt, random=Random(seed))

    assert max(1.0, longest / 2) <= delay <= longest
    assert retry.jitter(60, 60)(attempt, random=Random(seed)) == 60


@given(st.integers(), st.integers())
def test_waits_of_jitter_do_not_shrink(one, other):
    """Whatever is drawn, each wait is longer than the one before; at the cap, half the cap."""
    policy = retry.jitter()

    for attempt in range(1, 8):
        shorter = policy(attempt, random=Random(one))
        longer = policy(attempt + 1, random=Random(other))
        assert shorter < longer
    assert all(policy(attempt, random=Random(one)) >= 5400 for attempt in range(9, 20))


def test_the_default_lasts_longer_than_a_day():
    """Twenty attempts of the default policy outlast an outage of a day, however chance falls."""
    shortest = sum(max(1.0, min(10_800, 3.0**attempt) / 2) for attempt in range(1, 20))
    chance = Random(7)
    totals = sorted(
        sum(retry.jitter()(attempt, random=chance) for attempt in range(1, 20)) / 3600
        for _ in range(2_000)
    )

    assert pytest.approx([totals[200], totals[1_000], totals[1_800]], abs=0.2) == [25.0, 26.8, 28.7]
    assert shortest / 3600 > 17
    assert totals[0] > 20


def test_jitter_without_a_seed_differs():
    """Many jobs that fail together don't come back together."""
    assert len({retry.jitter()(10) for _ in range(20)}) > 1


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "60", None, 10**400, 1e300])
def test_bad_durations_are_refused(value):
    """A delay is a finite, non-negative number or timedelta of at most a hundred years."""
    for make in (retry.jitter, retry.exponential, retry.doubling, retry.fixed):
        with pytest.raises(OptionInvalid):
            make(value)


def test_a_cap_below_the_base_is_refused():
    """A base that would always be cut is a mistake, and the message says so."""
    with pytest.raises(OptionInvalid, match="less than base"):
        retry.doubling(base=7200)


def test_durations_may_be_timedeltas():
    """Seconds and timedeltas mean the same."""
    assert retry.jitter(2, 60) == retry.jitter(timedelta(seconds=2), timedelta(minutes=1))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("jitter", retry.Jitter(1, 10_800)),
        ("exponential", retry.Exponential(1, 2**20)),
        ("doubling", retry.Doubling(60, 3600)),
        (retry.jitter, retry.Jitter(1, 10_800)),
        (retry.fixed(3), retry.Fixed(3)),
    ],
)
def test_names_and_policies_resolve(value, expected):
    """A name, a policy, or its maker with the call forgotten, is the policy."""
    assert retry.resolve(value) == expected


@pytest.mark.parametrize("value", ["fixed", retry.fixed, "linear", 5, None])
def test_what_is_no_policy_is_refused(value: Any):
    """Unknown names, numbers, and fixed without its seconds are refused."""
    with pytest.raises(OptionInvalid) as caught:
        retry.resolve(value)

    assert caught.value.option == "retry"


def test_an_unknown_name_is_told_the_known_ones():
    """The message lists the names."""
    with pytest.raises(OptionInvalid, match="must be one of jitter, exponential, doubling"):
        retry.resolve("linear")


@pytest.mark.parametrize(
    "policy", [retry.jitter(2, 9), retry.exponential(3), retry.doubling(), retry.fixed(0.5)]
)
def test_stored_policies_come_back(policy):
    """A policy survives its way through a job's JSON."""
    text = codec.encode_json(retry.to_stored(policy), what="retry", bytes_max=1000)

    assert retry.from_stored(codec.decode(text)) == policy


def test_a_callable_is_stored_as_the_default():
    """Where the handler did not run, a user's callable counts as jitter."""
    stored = retry.to_stored(retry.resolve(lambda attempt, error: 5))

    assert stored == ["jitter", 1.0, 10_800.0]


@pytest.mark.parametrize(
    "value",
    [None, [], "jitter", ["jitter"], ["jitter", 1], ["jitter", -1, 5], ["jitter", True, 5], {},
     ["jitter", 9, 1], ["fixed", "x"], ["fixed", math.nan], ["later", 1], [["jitter"]], 7],
)  # fmt: skip
def test_corrupt_stored_policies_are_the_default(value):
    """What can't be read is jitter, so that the job still gets its retry."""
    assert retry.jitter() == retry.from_stored(value)


def test_a_callable_is_asked():
    """A user's callable gets attempt and error, and may answer with seconds or a timedelta."""
    seen: list[object] = []
    error = ValueError()

    def patient(attempt: int, error: BaseException | None) -> timedelta:
        seen.append((attempt, error))
        return timedelta(minutes=1)

    policy = retry.resolve(patient)

    assert retry.RetryDelay(60.0) == retry.ask(policy, 3, error)
    assert seen == [(3, error)]
    assert retry.RetryDelay(2.0) == retry.ask(retry.fixed(2), 1)


async def coroutine_policy(attempt: int, error: object) -> float:
    return 1.0


def raising_policy(attempt: int, error: object) -> float:
    raise KeyError("\0")


@pytest.mark.parametrize(
    "function",
    [
        raising_policy,
        coroutine_policy,
        lambda: 1,
        *(lambda attempt, error, answer=answer: answer
          for answer in [-1, math.nan, math.inf, None, "5", True, 10**400]),
    ],
)  # fmt: skip
def test_a_bad_answer_falls_back_to_jitter(function):
    """A callable that fails or answers nonsense is replaced by jitter, and the problem told."""
    answer = retry.ask(retry.resolve(function), 4)

    assert 40.5 <= answer.seconds <= 81
    assert answer.problem
    assert "\0" not in answer.problem

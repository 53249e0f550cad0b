"""Retry policies: how long a failed job waits before its next attempt. Pure.

    policy        after attempt n
    jitter        uniform(d / 2, d) where d = min(cap, base * 3**n)
    exponential   base * 2**n
    doubling      base * 2**(n-1)
    fixed         always the same

1. A delay is finite, never negative and never beyond its cap, for any attempt.
2. A policy is stored with its job as a name and numbers, so that every process can apply it. A
   callable is called only where the handler ran. Elsewhere the default, `jitter()`, is used.
"""

from __future__ import annotations

import inspect
import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, Protocol, TypeAlias, assert_never

from rowlock.codec import clean_text, error_record
from rowlock.config import DURATION_SECONDS_MAX
from rowlock.errors import OptionInvalid

Duration: TypeAlias = float | timedelta
Stored: TypeAlias = list[str | float]


class RetryPolicy(Protocol):
    """Seconds to wait after attempt `attempt` (1 is the first run) ended with `error`."""

    def __call__(
        self, attempt: int, error: BaseException | None = None, *, random: Random | None = None
    ) -> float: ...


def jitter(base: Duration = 1, cap: Duration = 3 * 3600) -> Jitter:
    """Wait a random time that triples with every attempt, so that many failures spread out.

    With 20 attempts the waits add up to about 27 hours.

    Args:
        base: The shortest delay, in seconds or as a timedelta.
        cap: The longest delay, three hours by default.
    """
    return Jitter(*_base_and_cap(base, cap))


def exponential(base: Duration = 1, cap: Duration = 2**20) -> Exponential:
    """Wait `base * 2**attempt`: 2, 4, 8 ... seconds by default, at most `cap`, 12 days."""
    return Exponential(*_base_and_cap(base, cap))


def doubling(base: Duration = 60, cap: Duration = 3600) -> Doubling:
    """Wait `base` after the first attempt, then twice as long each time: 60, 120 ... 3600 s."""
    return Doubling(*_base_and_cap(base, cap))


def fixed(seconds: Duration) -> Fixed:
    """Wait the same time after every attempt."""
    return Fixed(_option_seconds("seconds", seconds))


@dataclass(frozen=True, slots=True)
class Jitter:
    """A random time from half of base * 3**attempt to all of it, up to cap, never below base.

    Half of a delay that triples is more than all of the previous one. So no delay is shorter than
    the one before it until the cap is reached. Rejected: the decorrelated walk uniform(base,
    3 * the last delay). It shrank as often as it grew: 20 attempts were over after a median of 64
    minutes, and for one job in ten after 20.
    """

    base: float
    cap: float

    def __call__(
        self, attempt: int, error: BaseException | None = None, *, random: Random | None = None
    ) -> float:
        """Draw the delay after `attempt`. Pass a seeded `random` to repeat it."""
        uniform = random_module.uniform if random is None else random.uniform
        longest = min(self.cap, self.base * 3.0 ** max(0, min(attempt, _TRIPLINGS_MAX)))
        return _bounded(uniform(max(self.base, longest / 2), longest), self.cap)


@dataclass(frozen=True, slots=True)
class Exponential:
    """base * 2**attempt, up to cap."""

    base: float
    cap: float

    def __call__(
        self, attempt: int, error: BaseException | None = None, *, random: Random | None = None
    ) -> float:
        """Return the delay after `attempt`, without regard to the error or chance."""
        return _bounded(self.base * _power_of_two(attempt), self.cap)


@dataclass(frozen=True, slots=True)
class Doubling:
    """base * 2**(attempt - 1), up to cap."""

    base: float
    cap: float

    def __call__(
        self, attempt: int, error: BaseException | None = None, *, random: Random | None = None
    ) -> float:
        """Return the delay after `attempt`, without regard to the error or chance."""
        return _bounded(self.base * _power_of_two(attempt - 1), self.cap)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay after every attempt."""

    seconds: float

    def __call__(
        self, attempt: int, error: BaseException | None = None, *, random: Random | None = None
    ) -> float:
        """Return the delay, whatever the attempt and the error."""
        return _bounded(self.seconds, DURATION_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class CallablePolicy:
    """The user's own policy. It may raise or return anything, so only `ask` calls it."""

    function: Callable[[int, BaseException | None], Duration]


NamedPolicy: TypeAlias = Jitter | Exponential | Doubling | Fixed
Policy: TypeAlias = NamedPolicy | CallablePolicy


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """A delay, and the problem with the user's policy if the default replaced it."""

    seconds: float
    problem: str | None = None


def resolve(value: str | Policy | Callable[[int, BaseException | None], Duration]) -> Policy:
    """Return the policy that an option means: a name, one of `rowlock.retry.*`, or a callable.

    Raises:
        OptionInvalid: an unknown name, `"fixed"` without its seconds, or no policy at all.
    """
    if isinstance(value, (Jitter, Exponential, Doubling, Fixed, CallablePolicy)):
        return value
    # `retry=rowlock.retry.jitter` without the call can only mean its defaults.
    if value in ("fixed", fixed):
        raise OptionInvalid("retry", "fixed needs a delay; use rowlock.retry.fixed(seconds)")
    for name, make in _BY_NAME.items():
        if value in (name, make):
            return make()
    if callable(value):
        return CallablePolicy(value)
    names = ", ".join(_BY_NAME)
    raise OptionInvalid(
        "retry",
        f"must be one of {names}, rowlock.retry.fixed(seconds) or a callable, not {value!r:.100}",
    )


def ask(policy: Policy, attempt: int, error: BaseException | None = None) -> RetryDelay:
    """Return the delay after `attempt`, whatever a user's callable does. Never raises."""
    if not isinstance(policy, CallablePolicy):
        return RetryDelay(policy(attempt, error))
    try:
        return RetryDelay(_checked_answer(policy.function(attempt, error)))
    except Exception as failure:  # noqa: BLE001  # user code, and the failure must be settled
        record = error_record(failure)
        problem = f"retry policy failed, using jitter instead: {record.type}: {record.message}"
        return RetryDelay(
            _DEFAULT(attempt, error), clean_text(problem, bytes_max=_PROBLEM_BYTES_MAX)
        )


def to_stored(policy: Policy) -> Stored:
    """Return the policy as it is stored with a job: a name and numbers."""
    match policy:
        case Jitter():
            return ["jitter", policy.base, policy.cap]
        case Exponential():
            return ["exponential", policy.base, policy.cap]
        case Doubling():
            return ["doubling", policy.base, policy.cap]
        case Fixed():
            return ["fixed", policy.seconds]
        case CallablePolicy():
            return to_stored(_DEFAULT)
        case _:
            assert_never(policy)


def from_stored(value: object) -> NamedPolicy:
    """Return the policy stored with a job, or the default if this version can't read it."""
    try:
        match value:
            case ["jitter", float() | int() as base, float() | int() as cap]:
                return jitter(base, cap)
            case ["exponential", float() | int() as base, float() | int() as cap]:
                return exponential(base, cap)
            case ["doubling", float() | int() as base, float() | int() as cap]:
                return doubling(base, cap)
            case ["fixed", float() | int() as seconds]:
                return fixed(seconds)
            case _:
                return _DEFAULT
    except OptionInvalid:
        return _DEFAULT


# 3.0**640 is near the largest float. The product may be inf, and is capped.
_TRIPLINGS_MAX: Final = 640
# 2.0**1023 is the largest power of two in a float. The product may be inf, and is capped.
_EXPONENT_MAX: Final = 1023
_PROBLEM_BYTES_MAX: Final = 1024
_DEFAULT: Final = Jitter(1.0, 3 * 3600.0)
_BY_NAME: Final[dict[str, Callable[[], NamedPolicy]]] = {
    "jitter": jitter,
    "exponential": exponential,
    "doubling": doubling,
}


def _bounded(delay: float, cap: float) -> float:
    return max(0.0, min(delay, cap))


def _power_of_two(exponent: int) -> float:
    return 2.0 ** max(0, min(exponent, _EXPONENT_MAX))


def _base_and_cap(base: Duration, cap: Duration) -> tuple[float, float]:
    base_seconds, cap_seconds = _option_seconds("base", base), _option_seconds("cap", cap)
    if base_seconds > cap_seconds:
        raise OptionInvalid(
            "cap", f"{cap_seconds} s is less than base, {base_seconds} s; give a larger cap"
        )
    return base_seconds, cap_seconds


def _option_seconds(option: str, value: object) -> float:
    try:
        return _seconds(value)
    except (TypeError, ValueError) as error:
        raise OptionInvalid(option, str(error)) from None


def _seconds(value: object) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"must be seconds or a timedelta, not {type(value).__qualname__}")
    # Compared before it is converted: float() of a huge integer overflows.
    if not value >= 0 or value > DURATION_SECONDS_MAX:
        raise ValueError(f"must be from 0 to {DURATION_SECONDS_MAX:.0f} seconds")
    return float(value)


def _checked_answer(value: object) -> float:
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("must be a plain function, not a coroutine function")
    return _seconds(value)

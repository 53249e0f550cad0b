"""Limits on what runs: how many at once, how many in a period, in which order, per key or in total.

    stripe = app.limit("stripe", rate="100/s", per="customer", concurrency_per_key=2)

    @app.task(limit=stripe)
    def charge(customer: str, cents: int) -> None: ...

A limit is declared in code, like a schedule. Workers write it to the database when they start, and
the numbers in the database count. So a fleet of mixed versions has one opinion, and `limit.set`
changes it for all.

The key of a job is found when it is enqueued, and stored with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeVar
from uuid import UUID

import msgspec

from rowlock import codec, config
from rowlock.clock import duration_us
from rowlock.errors import OptionInvalid, shown
from rowlock.limit_info import PER_FUNCTION, PER_TENANT
from rowlock.store import options
from rowlock.store.ops import limits as ops
from rowlock.store.ops.limits import LimitNumbers
from rowlock.store.options import LimitPlace
from rowlock.store.steps import Op

T = TypeVar("T")
Key = str | int | UUID
OnDead = Literal["continue", "pause"]


class _Tenant(Enum):
    TENANT = "tenant"


TENANT: Final = _Tenant.TENANT
"""For `per`: the tenant of a job is its key."""

Per = str | _Tenant | Callable[[Mapping[str, Any]], Key]

_RATE: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*/\s*(\d{0,9})\s*([smhd])(?:\s+burst\s+(\d{1,9}))?", re.ASCII
)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# Starts so close together may come at once, unless a rate says otherwise.
_BURST_US: Final = 50_000
# As a text it fits into a key.
_KEY_NUMBER_MAX: Final = 10 ** (config.NAME_CHARACTERS_MAX - 2)


class Rate(msgspec.Struct, frozen=True):
    """How many jobs may start in a period, spread evenly over it.

    Example:
        rowlock.Rate(100, period=60, burst=10)
    """

    starts: float
    """How many jobs may start in one period."""
    period: float | timedelta = 1
    """Its length, in seconds or as a timedelta. A second by default."""
    burst: int | None = None
    """How many may start at once after a pause. By default 1, or as many as fit into 50 ms."""

    def checked(self, *, option: str) -> tuple[int, int]:
        """Return the microseconds between two starts, and the burst."""
        is_number = isinstance(self.starts, int | float) and not isinstance(self.starts, bool)
        # More than a start per microsecond is no limit.
        if not is_number or not 0 < self.starts < math.inf:
            raise OptionInvalid(option, f"starts must be more than 0, not {shown(self.starts)}")
        period_us = duration_us(self.period, option=option)
        if period_us == 0:
            raise OptionInvalid(option, "its period must be longer than 0 seconds")
        # Rounded up: never more than was allowed.
        interval_us = 1 if self.starts >= period_us else math.ceil(period_us / self.starts)
        if interval_us > config.RATE_INTERVAL_SECONDS_MAX * config.SECOND_US:
            raise OptionInvalid(option, "must allow at least one start a year")
        burst = max(1, _BURST_US // interval_us) if self.burst is None else self.burst
        return interval_us, options.integer(burst, option=option, low=1, high=config.LIMIT_MAX)


def rate_of(value: str | Rate, *, option: str) -> tuple[int, int]:
    """Return the microseconds between two starts of a rate, and its burst."""
    if isinstance(value, Rate):
        return value.checked(option=option)
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise OptionInvalid(
            option,
            f'must be a rate such as "100/s", "10/m", "500/h", "1000/d", "100/s burst 20", or '
            f"rowlock.Rate(starts, period=seconds), not {shown(value)}",
        )
    starts, periods, unit, burst = match.groups()
    seconds = int(periods or 1) * _UNITS[unit]
    return Rate(float(starts), seconds, int(burst) if burst else None).checked(option=option)


def key_text(value: object, *, option: str = "limit_key") -> str:
    """Return the one text of a key: a name, a number or a UUID. 1 and 1.0 are the same key."""
    match value:
        case str():
            # Of an enumeration, its text.
            return options.name(str.__str__(value), option=option)
        case UUID():
            return str(value)
        case bool():
            pass
        case int() if abs(value) <= _KEY_NUMBER_MAX:
            return str(int(value))
        case float() if value.is_integer() and abs(value) <= _KEY_NUMBER_MAX:
            return str(int(value))
        case float() if math.isfinite(value):
            return repr(value)
    raise OptionInvalid(option, f"must be a text, a number or a UUID, not {_kind_shown(value)}")


def _kind_shown(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "a number that is too large" if is_number else type(value).__name__


class OpRunner(Protocol):
    """Runs ops: the app."""

    def _run(self, op: Op[T]) -> T: ...
    async def _arun(self, op: Op[T]) -> T: ...


class Limit:
    """A limit for the jobs of any number of tasks. `app.limit(...)` makes one that has a name.

    Without a name, it is the limit of one task and has the task's name. At least one of the numbers
    is needed, or `per` (each key gets its turn), or `ordered`.

    Args:
        name: Its name in the database. All tasks with a limit of this name share it.
        concurrency: How many jobs may run at once, in total.
        rate: How many jobs may start in a period, in total: "100/s", "10/m", "500/h", "1000/d", or
            `rowlock.Rate`.
        per: The key of a job: the name of a parameter, `rowlock.TENANT`, or a function of the
            payload, as JSON with the defaults of the task's parameters. Keys always take turns.
        concurrency_per_key: How many jobs of one key may run at once.
        rate_per_key: How many jobs of one key may start in a period.
        weights: How many jobs of a key may start in one turn, where that is not one.
        ordered: Jobs of one key run one at a time, in the order in which they were enqueued. One
            that waits for a retry holds up those behind it.
        on_dead: What happens in an ordered limit when a job is dead: "continue" with the next one,
            or "pause" its key until somebody resumes it.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        per: Per | None = None,
        concurrency_per_key: int | None = None,
        rate_per_key: str | Rate | None = None,
        weights: Mapping[str, int] | None = None,
        ordered: bool = False,
        on_dead: OnDead = "continue",
    ) -> None:
        self.name: str | None = None if name is None else options.name(name, option="name")
        self.per: Per | None = _checked_per(per)
        if not isinstance(ordered, bool):
            raise OptionInvalid("ordered", f"must be True or False, not {shown(ordered)}")
        self.is_ordered: bool = ordered
        if per is None:
            for option, value in (
                ("concurrency_per_key", concurrency_per_key),
                ("rate_per_key", rate_per_key),
                ("weights", weights),
            ):
                if value is not None:
                    raise OptionInvalid(option, "needs per=..., which says what a key is")
        if on_dead not in ("continue", "pause"):
            raise OptionInvalid("on_dead", f'must be "continue" or "pause", not {shown(on_dead)}')
        if ordered:
            if concurrency_per_key not in (None, 1):
                raise OptionInvalid("concurrency_per_key", "must be 1 if jobs run in order")
            concurrency_per_key = 1
        elif on_dead == "pause":
            raise OptionInvalid("on_dead", "needs ordered=True")
        interval_us, burst = (None, None) if rate is None else rate_of(rate, option="rate")
        key_interval_us, key_burst = (
            (None, None) if rate_per_key is None else rate_of(rate_per_key, option="rate_per_key")
        )
        self.numbers: LimitNumbers = LimitNumbers(
            concurrency=_number(concurrency, option="concurrency"),
            interval_us=interval_us,
            burst=burst,
            key_concurrency=_number(concurrency_per_key, option="concurrency_per_key"),
            key_interval_us=key_interval_us,
            key_burst=key_burst,
            weights=_checked_weights(weights),
            is_ordered=ordered,
            pauses_when_dead=on_dead == "pause",
            per=_per_text(per),
        )
        if per is None and not ordered and concurrency is None and rate is None:
            raise OptionInvalid("concurrency", "give a number, a rate, per= or ordered=True")
        # The queue of an ordered limit, once a task has it.
        self.queue: str | None = None
        self._is_of_one_task = name is None
        self._runner: OpRunner | None = None

    def __repr__(self) -> str:
        return f"<Limit {self.name!r}>"

    @property
    def declared(self) -> ops.DeclaredLimit:
        """What workers write to the database."""
        assert self.name is not None
        return ops.DeclaredLimit(self.name, self.numbers)

    def agrees_with(self, other: Limit) -> bool:
        """Whether both say the same, so that they can have one name."""
        one_queue = self.queue is None or other.queue in (None, self.queue)
        return self.numbers == other.numbers and self.per == other.per and one_queue

    def bind(self, runner: OpRunner) -> None:
        """Belong to that app from now on. The last app wins."""
        self._runner = runner

    def give_to(self, kind: str, queue: str, priority: int, schema: Fields) -> None:
        """Become the limit of a task. Raise `OptionInvalid` if the task can't have this limit."""
        if isinstance(self.per, str) and self.per not in schema.parameters:
            known = ", ".join(schema.parameters) or "none"
            raise OptionInvalid(
                "per", f"task {kind!r} has no parameter {self.per!r}; it has: {known}"
            )
        if self._is_of_one_task and self.name not in (None, kind):
            raise OptionInvalid(
                "limit",
                f"has no name, and is already that of task {self.name!r}; to share it, give it a "
                "name",
            )
        if self.is_ordered:
            if priority:
                raise OptionInvalid("priority", f"must be 0 for {kind!r}, whose jobs run in order")
            if self.queue not in (None, queue):
                raise OptionInvalid(
                    "queue",
                    f"tasks of an ordered limit need one queue: {kind!r} has {queue!r}, and others"
                    f" have {self.queue!r}",
                )
            self.queue = queue
        if self.name is None:
            self.name = kind

    def check_job(self, queue: str, rank: int) -> None:
        """Check that a job with these options can have this limit."""
        if self.queue not in (None, queue):
            raise OptionInvalid(
                "queue", f"must be {self.queue!r}: jobs of limit {self.name!r} run in order there"
            )
        if self.is_ordered and rank:
            raise OptionInvalid("priority", f"must be 0: jobs of limit {self.name!r} run in order")

    def place(self, job: Placed, schema: Fields, key: Key | None = None) -> LimitPlace:
        """Return where a job waits: its limit, and its key there.

        Raises:
            OptionInvalid: The key is no text, number or UUID.
        """
        if key is None:
            return self.place_at(self._found_key(job, schema))
        if self.per is None:
            raise OptionInvalid("limit_key", f"limit {self.name!r} has no keys: it has no per=")
        return self.place_at(key_text(key))

    def place_at(self, key: str = "") -> LimitPlace:
        """Return where jobs of a key wait. The empty key is that of jobs that have none."""
        assert self.name is not None
        return LimitPlace(self.name, key, self.is_ordered)

    def _found_key(self, job: Placed, schema: Fields) -> str:
        match self.per:
            case None:
                return ""
            case _Tenant():
                return job.tenant or ""
            case str() as name:
                value = schema.value_of(codec.decode(job.payload), name)
                said = f"its {name!r}"
            case per:
                value = per(schema.with_defaults(codec.decode(job.payload)))
                said = "what `per` returns"
        try:
            return key_text(value)
        except OptionInvalid as error:
            problem = f"{said} {error.problem}, or set limit_key="
            raise OptionInvalid("limit_key", problem) from None

    # At run time

    def set(
        self,
        *,
        key: Key | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        concurrency_per_key: int | None = None,
        rate_per_key: str | Rate | None = None,
        weight: int | None = None,
    ) -> None:
        """Use other numbers from now on, for all workers, across deploys, until `unset`.

        Args:
            key: Only for this key. `concurrency`, `rate` and `weight` are then the key's own.
            concurrency: How many jobs may run at once: of the key, or in total.
            rate: How many jobs may start in a period: of the key, or in total.
            concurrency_per_key: For every key that has no number of its own.
            rate_per_key: For every key that has no rate of its own.
            weight: How many jobs of the key may start in one turn.
        """
        chosen = chosen_numbers(
            key=key,
            concurrency=concurrency,
            rate=rate,
            concurrency_per_key=concurrency_per_key,
            rate_per_key=rate_per_key,
            weight=weight,
        )
        self._do(self._set_op(key, chosen))

    async def aset(
        self,
        *,
        key: Key | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        concurrency_per_key: int | None = None,
        rate_per_key: str | Rate | None = None,
        weight: int | None = None,
    ) -> None:
        """As `set`."""
        chosen = chosen_numbers(
            key=key,
            concurrency=concurrency,
            rate=rate,
            concurrency_per_key=concurrency_per_key,
            rate_per_key=rate_per_key,
            weight=weight,
        )
        await self._ado(self._set_op(key, chosen))

    def _set_op(self, key: Key | None, chosen: ops.ChosenNumbers) -> Op[None]:
        if self.per is None and (chosen.key_concurrency or chosen.key_interval_us):
            raise OptionInvalid("per", f"limit {self.name!r} has no keys: it has no per=")
        return ops.set_limit(self._name, self._key(key), chosen, declared=self.declared)

    def unset(self, *, key: Key | None = None) -> None:
        """Go back to the declared numbers, of a key or of the limit. Keys keep theirs then."""
        self._do(ops.unset_limit(self._name, self._key(key)))

    async def aunset(self, *, key: Key | None = None) -> None:
        """As `unset`."""
        await self._ado(ops.unset_limit(self._name, self._key(key)))

    def pause(
        self,
        *,
        key: Key | None = None,
        seconds: float | timedelta | None = None,
        reason: str | None = None,
    ) -> None:
        """Start no job of a key, or of the limit, for some time or until `resume`."""
        self._do(self._pause_op(key, seconds, reason))

    async def apause(
        self,
        *,
        key: Key | None = None,
        seconds: float | timedelta | None = None,
        reason: str | None = None,
    ) -> None:
        """As `pause`."""
        await self._ado(self._pause_op(key, seconds, reason))

    def _pause_op(
        self, key: Key | None, seconds: float | timedelta | None, reason: str | None
    ) -> Op[None]:
        return ops.pause_limit(
            self._name, self._key(key), seconds, reason=reason, declared=self.declared
        )

    def resume(self, *, key: Key | None = None) -> None:
        """Start jobs of a key, or of the limit, again. A key that was paused alone stays paused."""
        self._do(ops.resume_limit(self._name, self._key(key)))

    async def aresume(self, *, key: Key | None = None) -> None:
        """As `resume`."""
        await self._ado(ops.resume_limit(self._name, self._key(key)))

    @property
    def _name(self) -> str:
        if self.name is None or self._runner is None:
            raise OptionInvalid("limit", "belongs to no app yet; give it to a task of an app first")
        return self.name

    def _key(self, key: Key | None) -> str | None:
        if key is not None and self.per is None:
            raise OptionInvalid("key", f"limit {self.name!r} has no keys: it has no per=")
        return None if key is None else key_text(key, option="key")

    def _do(self, op: Op[None]) -> None:
        assert self._runner is not None
        self._runner._run(op)

    async def _ado(self, op: Op[None]) -> None:
        assert self._runner is not None
        await self._runner._arun(op)


class Placed(Protocol):
    """What of a job decides its key."""

    @property
    def tenant(self) -> str | None: ...
    @property
    def payload(self) -> str: ...


class Fields(Protocol):
    """What a task knows about its payloads."""

    @property
    def parameters(self) -> Sequence[str]:
        """The names of its parameters."""
        ...

    @property
    def takes_extra(self) -> bool:
        """Whether payloads may have other names, too."""
        ...

    def value_of(self, payload: Mapping[str, Any], name: str) -> object:
        """Return the value of a parameter, or its default. One that is a UUID comes as one."""
        ...

    def with_defaults(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload with the defaults of the parameters that it lacks."""
        ...


def chosen_numbers(
    *,
    key: Key | None = None,
    concurrency: int | None = None,
    rate: str | Rate | None = None,
    concurrency_per_key: int | None = None,
    rate_per_key: str | Rate | None = None,
    weight: int | None = None,
) -> ops.ChosenNumbers:
    """Check the numbers of `Limit.set`."""
    if key is not None and (concurrency_per_key is not None or rate_per_key is not None):
        raise OptionInvalid("key", "give concurrency= and rate= for a key: they are its own")
    if key is None and weight is not None:
        raise OptionInvalid("weight", "needs key=...: it is the weight of a key")
    interval_us, burst = (None, None) if rate is None else rate_of(rate, option="rate")
    key_interval_us, key_burst = (
        (None, None) if rate_per_key is None else rate_of(rate_per_key, option="rate_per_key")
    )
    chosen = ops.ChosenNumbers(
        concurrency=_number(concurrency, option="concurrency"),
        interval_us=interval_us,
        burst=burst,
        key_concurrency=_number(concurrency_per_key, option="concurrency_per_key"),
        key_interval_us=key_interval_us,
        key_burst=key_burst,
        weight=None if weight is None else _weight(weight, option="weight"),
    )
    if chosen == ops.ChosenNumbers():
        raise OptionInvalid("concurrency", "give at least one number to set")
    return chosen


def _number(value: int | None, *, option: str) -> int | None:
    if value is None:
        return None
    return options.integer(value, option=option, low=1, high=config.LIMIT_MAX)


def _weight(value: int, *, option: str) -> int:
    return options.integer(value, option=option, low=1, high=config.LIMIT_WEIGHT_MAX)


def _checked_weights(weights: Mapping[str, int] | None) -> dict[str, int]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        raise OptionInvalid("weights", f"must be a mapping of keys to numbers, not {weights!r}")
    if len(weights) > config.LIMIT_WEIGHTS_MAX:
        raise OptionInvalid(
            "weights",
            f"must be of at most {config.LIMIT_WEIGHTS_MAX} keys, not {len(weights)}; give others "
            "theirs by limit.set(key=..., weight=...)",
        )
    return {
        key_text(key, option="weights"): _weight(weight, option="weights")
        for key, weight in weights.items()
    }


def _checked_per(per: Per | None) -> Per | None:
    if isinstance(per, str):
        return options.name(per, option="per")
    if per is None or isinstance(per, _Tenant) or callable(per):
        return per
    raise OptionInvalid(
        "per",
        f"must be the name of a parameter, rowlock.TENANT, or a function, not {shown(per)}",
    )


def _per_text(per: Per | None) -> str | None:
    """What is stored about `per`, for people."""
    if per is None or isinstance(per, str):
        return per
    return PER_TENANT if isinstance(per, _Tenant) else PER_FUNCTION

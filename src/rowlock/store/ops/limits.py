"""Limits in the database: declared by code, changed and paused at run time.

1. `declared` is what the code of the last worker to start says, `chosen` what was set since. The
   numbers that claims read are both together, written with every change of one of them.
2. A worker that declares what is stored already writes nothing.
3. A key has a row only if there is something to remember about it: its own numbers, a pause, or the
   time of its next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from rowlock import codec, config
from rowlock.clock import duration_us
from rowlock.errors import NotFound, OptionInvalid
from rowlock.events import LimitChange, change_of
from rowlock.store.ops.rooms import look_at_rooms
from rowlock.store.steps import Batch, Begin, Op, Ring, Row, Statement, Steps, writing

# A pause without an end.
FOR_EVER_US: Final = 2**62


class LimitNumbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of a limit, as code declares them. `interval_us` is the time between two starts."""

    concurrency: int | None = None
    interval_us: int | None = None
    burst: int | None = None
    key_concurrency: int | None = None
    key_interval_us: int | None = None
    key_burst: int | None = None
    weights: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    is_ordered: bool = False
    pauses_when_dead: bool = False
    # What tells keys apart, for people.
    per: str | None = None


class ChosenNumbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers that were set at run time. `weight` is of a key."""

    concurrency: int | None = None
    interval_us: int | None = None
    burst: int | None = None
    key_concurrency: int | None = None
    key_interval_us: int | None = None
    key_burst: int | None = None
    weight: int | None = None


class DeclaredLimit(NamedTuple):
    """A limit and its rules."""

    name: str
    numbers: LimitNumbers


decode_declared: Callable[[str], LimitNumbers] = msgspec.json.Decoder(LimitNumbers).decode
decode_chosen: Callable[[str], ChosenNumbers] = msgspec.json.Decoder(ChosenNumbers).decode
_RULES: Final = ("concurrency", "interval_us", "burst")
_KEY_RULES: Final = ("key_concurrency", "key_interval_us", "key_burst")
_COLUMNS: Final = (
    "name",
    *_RULES,
    *_KEY_RULES,
    "is_ordered",
    "pauses_when_dead",
    "weights",
    "declared",
    "chosen",
)


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _row(name: str, numbers: LimitNumbers, chosen: ChosenNumbers | None) -> Row:
    """The stored row: what counts is what was chosen, and what was declared for the rest."""
    over = chosen or ChosenNumbers()
    rules: list[Any] = []
    for rule, interval, burst in (_RULES, _KEY_RULES):
        rules.append(getattr(over, rule) or getattr(numbers, rule))
        # A rate is one thing: its interval and its burst.
        rate = numbers if getattr(over, interval) is None else over
        rules += [getattr(rate, interval), getattr(rate, burst)]
    weights = msgspec.json.encode(numbers.weights).decode() if numbers.weights else None
    own = None if chosen is None or chosen == ChosenNumbers() else _text(chosen)
    flags = (numbers.is_ordered, numbers.pauses_when_dead)
    return (name, *rules, *flags, weights, _text(numbers), own)


class _Stored(NamedTuple):
    """A limit in the database."""

    name: str
    declared: LimitNumbers
    chosen: ChosenNumbers | None


def _lock(names: Sequence[str]) -> Steps[dict[str, _Stored]]:
    rows = yield Statement("lock_limits", {"names": list(names)})
    return {
        name: _Stored(name, decode_declared(declared), chosen and decode_chosen(chosen))
        for name, declared, chosen in rows
    }


def declare_limits(declared: Sequence[DeclaredLimit]) -> Op[list[str]]:
    """Make the limits that were declared in code match the code. What was set since stays.

    Returns:
        The names of those that are new or have other numbers now.
    """

    def steps() -> Steps[list[str]]:
        if not declared:
            return []
        yield Begin()
        return (yield from _declare(declared))

    return writing("declare_limits", steps, repeat=steps)


def _declare(declared: Sequence[DeclaredLimit]) -> Steps[list[str]]:
    ordered = sorted(declared)
    stored = yield from _lock([name for name, _ in ordered])
    fresh = [_row(name, numbers, None) for name, numbers in ordered if name not in stored]
    if fresh:
        added = {row[0] for row in (yield Batch("add_limit", _COLUMNS, fresh))}
        if len(added) < len(fresh):
            # Somebody else has just declared one.
            stored = yield from _lock([name for name, _ in ordered if name not in added])
    changed = [
        _row(name, numbers, stored[name].chosen)
        for name, numbers in ordered
        if name in stored and stored[name].declared != numbers
    ]
    if changed:
        yield Batch("change_limit", _COLUMNS, changed)
    names = [row[0] for row in (*fresh, *changed)]
    yield from _wake(names)
    return names


def set_limit(
    name: str,
    key: str | None,
    chosen: ChosenNumbers,
    *,
    declared: DeclaredLimit | None = None,
) -> Op[None]:
    """Use other numbers for a limit, or for one of its keys, until they are unset.

    Args:
        declared: Written first, if the database does not know the limit yet.
    """

    def steps() -> Steps[None]:
        yield Begin()
        stored = yield from _known(name, declared, key=key)
        if stored.declared.is_ordered and (chosen.key_concurrency or (key and chosen.concurrency)):
            raise OptionInvalid(
                "concurrency", f"can't be set for a key of limit {name!r}: its jobs run in order"
            )
        if key is not None:
            numbers = {rule: getattr(chosen, rule) for rule in (*_RULES, "weight")}
            yield Statement("set_key", {"limit_name": name, "key": key, **numbers})
        else:
            row = _row(name, stored.declared, _over(stored.chosen, chosen))
            yield Batch("change_limit", _COLUMNS, [row])
        yield from _changed(LimitChange(name, "set", key))

    return writing("set_limit", steps, repeat=steps)


def _over(old: ChosenNumbers | None, new: ChosenNumbers) -> ChosenNumbers:
    """What was set before, with what is set now over it."""
    if old is None:
        return new
    given = {
        field: value for field, value in msgspec.structs.asdict(new).items() if value is not None
    }
    return msgspec.structs.replace(old, **given)


def adopt_chosen(chosen: Mapping[str, str]) -> Steps[None]:
    """Use numbers that were set in another database, by limit, where none were set in this one."""
    stored = yield from _lock(sorted(chosen))
    rows = [
        _row(name, here.declared, decode_chosen(chosen[name]))
        for name, here in sorted(stored.items())
        if here.chosen is None
    ]
    if rows:
        yield Batch("change_limit", _COLUMNS, rows)
        yield from _wake([row[0] for row in rows])


def unset_limit(name: str, key: str | None = None) -> Op[None]:
    """Go back to the declared numbers, for a limit or for one of its keys."""

    def steps() -> Steps[None]:
        yield Begin()
        stored = yield from _known(name, key=key)
        if key is not None:
            yield Statement("unset_key", {"limit_name": name, "key": key})
        elif stored.chosen is not None:
            yield Batch("change_limit", _COLUMNS, [_row(name, stored.declared, None)])
        yield from _changed(LimitChange(name, "unset", key))

    return writing("unset_limit", steps, repeat=steps)


def pause_limit(
    name: str,
    key: str | None = None,
    seconds: float | timedelta | None = None,
    *,
    reason: str | None = None,
    declared: DeclaredLimit | None = None,
) -> Op[None]:
    """Start no job of a limit, or of one of its keys, for some time. None: until it is resumed."""
    time = None if seconds is None else duration_us(seconds, option="seconds")

    def steps() -> Steps[None]:
        yield Begin()
        yield from _known(name, declared, key=key)
        said = yield from close(name, key, time, reason)
        yield from _publish(LimitChange(name, "paused", key, said))

    return writing("pause_limit", steps, repeat=steps)


def close(name: str, key: str | None, time: int | None, reason: str | None) -> Steps[str | None]:
    """Start no job of a limit, or of one of its keys, for this many microseconds.

    Returns the reason as it is stored.
    """
    said = None if reason is None else codec.clean_text(reason, bytes_max=config.REASON_BYTES_MAX)
    values = {
        "limit_name": name,
        "time": FOR_EVER_US if time is None else time,
        "reason": said,
    }
    if key is None:
        yield Statement("close_limit", values)
    else:
        yield Statement("close_key", {**values, "key": key})
    return said


def resume_limit(name: str, key: str | None = None) -> Op[None]:
    """Start jobs of a limit, or of one of its keys, again."""

    def steps() -> Steps[None]:
        yield Begin()
        stored = yield from _known(name, key=key)
        if key is None:
            yield Statement("open_limit", {"limit_name": name})
        if key is not None or stored.declared.per is None:
            # Without keys, `Throttled` and a dead job close the key that all jobs have.
            yield Statement("open_key", {"limit_name": name, "key": key or ""})
        yield from _changed(LimitChange(name, "resumed", key))

    return writing("resume_limit", steps, repeat=steps)


def _known(
    name: str, declared: DeclaredLimit | None = None, *, key: str | None = None
) -> Steps[_Stored]:
    """The limit, locked. Raises `NotFound`, or `OptionInvalid` if it can't have such a key."""
    stored = yield from _lock([name])
    if name not in stored and declared is not None:
        yield from _declare([declared])
        stored = yield from _lock([name])
    if name not in stored:
        raise unknown_limit(name)
    if key is not None and stored[name].declared.per is None:
        raise OptionInvalid("key", f"limit {name!r} has no keys: it has no per=")
    return stored[name]


def unknown_limit(name: str) -> NotFound:
    """The error of a limit that is not in the database."""
    return NotFound(
        f"there is no limit {name!r}; a worker whose code declares it writes it when it starts"
    )


def _changed(change: LimitChange) -> Steps[None]:
    """A limit may allow more than before: publish it, and have its workers look."""
    yield from _publish(change)
    yield from _wake([change.name])


def _publish(change: LimitChange) -> Steps[None]:
    text = msgspec.json.encode([change_of(change)]).decode()
    yield Statement("event_write", {"events": text})


def _wake(names: Sequence[str]) -> Steps[None]:
    """Have the workers of queues with jobs at these limits look at once."""
    found = yield from look_at_rooms(None, None)
    queues = frozenset(room.queue for room in found.rooms if room.limit in names)
    if queues:
        yield Ring(queues)

"""A user's options for a job, checked: names, priorities, times, limits."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Self,
    SupportsFloat,
    TypeVar,
)
from uuid import UUID

from rowlock import codec, config
from rowlock.clock import duration_us, to_us
from rowlock.errors import OptionInvalid, shown
from rowlock.ids import new_id, parse_id
from rowlock.inputs import Input
from rowlock.job import KEY_HELD_UNTIL_STARTED, KEY_HELD_WHILE_KEPT, Policy
from rowlock.suggest import option_hint

E = TypeVar("E", bound=StrEnum)
R_co = TypeVar("R_co", covariant=True)
KeyHold = Literal["in_flight", "until_started", "kept"] | float | timedelta
IfHeld = Literal["keep", "replace"]


# The field of `meta` that names the job whose success enqueued this one.
PARENT: Final = "parent"


def parent_mark(parent: str) -> str:
    """The text that is in the stored `meta` of every job that follows this one."""
    return f'"{PARENT}":"{parent}"'


class FirstSend:
    """Whether a job was sent before. All copies of the job share this object."""

    was_sent: bool = False


class LimitPlace(NamedTuple):
    """The limit of a job and its key there, which is '' if the limit has no keys."""

    name: str
    key: str = ""
    is_ordered: bool = False


class NodePlace(NamedTuple):
    """The place of a job in a workflow.

    `pending`: how many jobs it waits for. `watched`: a job waits for its death. `stack`: which
    nodes are like it. `inputs`: the results of other jobs that it gets, as they are stored.
    """

    workflow: str
    stack: int | None = None
    pending: int = 0
    watched: bool = False
    inputs: str | None = None


class NewJob(NamedTuple):
    """A job to enqueue, checked and encoded, as `task.job(...)` makes it."""

    # A tuple that begins with the row's values: a dataclass took ten times as long to make.
    # `policy` None: the first worker that knows the kind decides.
    id: str
    kind: str
    queue: str
    rank: int
    tenant: str | None
    key: str | None
    key_hold: int | None
    payload: str
    max_attempts: int | None
    run_at: int | None
    delay: int
    tags: str | None
    meta: str | None
    policy: str | None
    is_resend: bool
    limit: LimitPlace | None = None
    # Whether it replaces the payload and options of a waiting job that holds its key. It is then
    # due at most `max_wait` microseconds after that job was created.
    replaces: bool = False
    max_wait: int | None = None
    # Arguments that are results of other jobs. Only a workflow can have such a job.
    inputs: Mapping[str, Input] | None = None
    node: NodePlace | None = None
    # None: the job can't be sent again.
    first_send: FirstSend | None = None

    def sent(self) -> Self:
        """The same job, marked as sent. Sending it again sends a job that may already exist."""
        if self.inputs:
            name = next(iter(self.inputs))
            raise OptionInvalid(name, "is the result of another job: add this one to a workflow")
        if self.first_send is None or self.is_resend:
            return self
        if self.first_send.was_sent:
            return self._replace(is_resend=True)
        self.first_send.was_sent = True
        return self

    def row(self) -> tuple[Any, ...]:
        """The values of `NEW_JOB_COLUMNS`."""
        return self[:_COLUMNS]

    def limited_row(self) -> tuple[Any, ...]:
        """The values of `LIMITED_JOB_COLUMNS`."""
        return (*self[:_COLUMNS], *(self.limit or (None, None, False)))

    def node_row(self) -> tuple[Any, ...]:
        """The values of `NODE_COLUMNS`."""
        node = self.node
        if node is None:
            return (*self.limited_row(), None, None, None, None, None)
        watched = True if node.watched else None
        place = (node.workflow, node.stack, node.pending, watched, node.inputs)
        return (*self.limited_row(), *place)

    def following(self, parent: str) -> Self:
        """The same job, with its parent's id in `meta`, unless the user set one."""
        if self.meta is None or self.meta == "{}":
            return self._replace(meta=f"{{{parent_mark(parent)}}}")
        if f'"{PARENT}":' in self.meta and PARENT in codec.decode(self.meta):
            return self
        return self._replace(meta=f"{{{parent_mark(parent)},{self.meta[1:]}")

    def marked(self, marks: Mapping[str, object]) -> Self:
        """The same job, with these marks in `meta` if they fit. The user's own values stay."""
        own: dict[str, object] = codec.decode(self.meta) if self.meta else {}
        try:
            return self._replace(meta=meta_of({**marks, **own})) if marks else self
        except OptionInvalid:
            return self

    def again(self, payload: str) -> Self:
        """A similar job with another payload. It gets a new id, unless the user chose one."""
        values: list[Any] = list(self)
        if not self.is_resend:
            values[0] = new_id()
        values[_PAYLOAD], values[-1] = payload, FirstSend()
        return tuple.__new__(type(self), values)


class TypedJob(Generic[R_co]):
    """A `NewJob` as users get it from `task.job(...)`: only the type of its result is known.

    Not a subclass: mypy mixes up generic subclasses of named tuples when arguments have no types.
    """

    id: str
    """The id that it will have, unless it is added to a workflow."""


NEW_JOB_COLUMNS = NewJob._fields[: NewJob._fields.index("is_resend")]
LIMITED_JOB_COLUMNS = (*NEW_JOB_COLUMNS, "limit_name", "limit_key", "is_ordered")
NODE_COLUMNS = (*LIMITED_JOB_COLUMNS, "workflow", "stack", "pending", "watched", "inputs")
_COLUMNS = len(NEW_JOB_COLUMNS)
_PAYLOAD = NEW_JOB_COLUMNS.index("payload")


def new_job(
    *,
    kind: str,
    payload: str,
    queue: str = "default",
    priority: int = 0,
    tenant: str | None = None,
    key: str | None = None,
    key_hold: KeyHold | None = None,
    if_held: IfHeld | None = None,
    quiet: float | timedelta | None = None,
    max_wait: float | timedelta | None = None,
    max_attempts: int | None = None,
    run_at: datetime | None = None,
    delay: float | timedelta | None = None,
    tags: Collection[str] | None = None,
    meta: Mapping[str, object] | None = None,
    id: str | UUID | None = None,
    policy: Policy | str | None = None,
    limit: LimitPlace | None = None,
) -> NewJob:
    """Check every option of an enqueue. `payload` is already encoded, `policy` may be."""
    if run_at is not None and delay is not None:
        raise OptionInvalid("delay", "give either delay or run_at, not both")
    if limit is not None and limit.is_ordered and priority != 0:
        raise OptionInvalid(
            "priority", f"must be 0 under the limit {limit.name!r}, whose jobs run in order"
        )
    if quiet is not None and not (run_at is None and delay is None):
        raise OptionInvalid("quiet", "sets the time to run; omit delay and run_at")
    if key_hold is None:
        # A debounced job whose key were held while it runs would miss the last change.
        key_hold = "in_flight" if quiet is None else "until_started"
    # Checked even without a key, where it has no effect.
    held = key_hold_us(key_hold)
    return NewJob(
        id=new_id() if id is None else parse_id(id),
        kind=name(kind, option="kind"),
        queue=name(queue, option="queue"),
        rank=-priority_of(priority),
        tenant=None if tenant is None else name(tenant, option="tenant"),
        key=None if key is None else name(key, option="key"),
        key_hold=None if key is None else held,
        payload=payload,
        max_attempts=None if max_attempts is None else attempts(max_attempts),
        run_at=None if run_at is None else to_us(run_at, option="run_at"),
        delay=_delay_us(delay, quiet),
        tags=None if tags is None else tags_of(tags),
        meta=None if meta is None else meta_of(meta),
        policy=policy.encoded() if isinstance(policy, Policy) else policy,
        is_resend=id is not None,
        limit=limit,
        replaces=_is_replacing(if_held, key, quiet),
        max_wait=_max_wait_us(max_wait, quiet),
        first_send=FirstSend(),
    )


def _delay_us(delay: float | timedelta | None, quiet: float | timedelta | None) -> int:
    if quiet is not None:
        return duration_us(quiet, option="quiet")
    return 0 if delay is None else duration_us(delay, option="delay")


def _max_wait_us(max_wait: float | timedelta | None, quiet: float | timedelta | None) -> int | None:
    if max_wait is None:
        return None
    if quiet is None:
        raise OptionInvalid("max_wait", "needs quiet; to run a job later, use delay")
    longest = duration_us(max_wait, option="max_wait")
    if longest < duration_us(quiet, option="quiet"):
        raise OptionInvalid("max_wait", "must be at least as long as quiet")
    return longest


def _is_replacing(if_held: str | None, key: str | None, quiet: float | timedelta | None) -> bool:
    if if_held not in (None, "keep", "replace"):
        raise OptionInvalid("if_held", f"must be 'keep' or 'replace', not {shown(if_held)}")
    if quiet is not None:
        if key is None:
            raise OptionInvalid("quiet", "needs a key, which says what is enqueued repeatedly")
        if if_held == "keep":
            raise OptionInvalid("if_held", "must be 'replace' with quiet; change or omit it")
        return True
    if if_held == "replace" and key is None:
        raise OptionInvalid("if_held", "needs a key, which says which job to replace")
    return if_held == "replace"


def name(value: str, *, option: str) -> str:
    """A queue, kind, tenant, key, tag or worker: any storable text of 1 to 200 characters."""
    if not isinstance(value, str):
        raise OptionInvalid(option, f"must be a string, not {type(value).__name__}")
    if not 0 < len(value) <= config.NAME_CHARACTERS_MAX:
        raise OptionInvalid(
            option, f"must have 1 to {config.NAME_CHARACTERS_MAX} characters, not {len(value)}"
        )
    if value.isascii():
        if "\0" in value:
            raise OptionInvalid(option, "must not contain a NUL character")
    elif "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise OptionInvalid(option, "must not contain a NUL character or a lone surrogate")
    return value


def refuse_unknown(chosen: Mapping[str, object], known: Collection[str]) -> None:
    """Raise for an option that does not exist, and suggest the nearest one."""
    for option in chosen:
        if option not in known:
            spelt = option if isinstance(option, str) else shown(option)
            raise OptionInvalid(spelt, f"there is no such option{option_hint(spelt, known)}")


def choice(kind: type[E], value: str, *, option: str) -> E:
    """One of the values of an enumeration."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise OptionInvalid(option, f"must be one of {known}, not {shown(value)}") from None


def names(values: Sequence[str] | None, *, option: str) -> list[str] | None:
    """A list of names, each once. None stays None, and a single string is refused."""
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise OptionInvalid(option, f"must be a list of names, not {_type_shown(values)}")
    return list(dict.fromkeys(name(value, option=option) for value in values))


def integer(value: int, *, option: str, low: int, high: int) -> int:
    """A whole number in a range, both ends included."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise OptionInvalid(
            option, f"must be a whole number from {low} to {high}, not {shown(value)}"
        )
    return value


def fraction(value: object, *, option: str) -> float:
    """The progress of a run: any number, moved into the range from 0 to 1.

    A sum of tenths may be slightly more than 1, and no job should fail for that. NaN counts as 0.
    """
    if not isinstance(value, SupportsFloat):
        raise OptionInvalid(option, f"must be a number from 0 to 1, not {shown(value)}")
    number: Any = value
    try:
        number = float(value)
    except OverflowError:
        return 1.0 if number > 0 else 0.0
    except ValueError:
        # A Decimal can be a signaling NaN, which raises when it is compared.
        return 0.0
    return 0.0 if math.isnan(number) else min(1.0, max(0.0, number))


def text(value: str, *, option: str) -> str:
    """Any string, even one that a store can't hold as it is."""
    if not isinstance(value, str):
        raise OptionInvalid(option, f"must be a string, not {type(value).__name__}")
    return value


def texts(values: Iterable[str], *, option: str) -> list[str]:
    """A list of strings. A single string is refused."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise OptionInvalid(option, f"must be a list of strings, not {_type_shown(values)}")
    return [text(value, option=option) for value in values]


def priority_of(value: int) -> int:
    return integer(value, option="priority", low=config.PRIORITY_MIN, high=config.PRIORITY_MAX)


def attempts(value: int) -> int:
    return integer(value, option="max_attempts", low=1, high=config.MAX_ATTEMPTS_LIMIT)


def key_hold_us(value: KeyHold) -> int | None:
    """The stored form: None while in flight, microseconds from the enqueue, or below zero."""
    if value == "in_flight":
        return None
    if value == "until_started":
        return KEY_HELD_UNTIL_STARTED
    if value == "kept":
        return KEY_HELD_WHILE_KEPT
    if isinstance(value, str):
        known = "'in_flight', 'until_started', 'kept' or seconds"
        raise OptionInvalid("key_hold", f"must be {known}, not {value!r}")
    return duration_us(value, option="key_hold") or None


def keep_us(value: float | timedelta | None, *, option: str = "keep") -> int | None:
    """How long a finished job is kept. None: forever."""
    return None if value is None else duration_us(value, option=option)


def tags_of(tags: Collection[str]) -> str | None:
    """The stored form of tags. None if there are none."""
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise OptionInvalid("tags", f"must be a list of names, not {_type_shown(tags)}")
    if len(tags) > config.TAGS_MAX:
        raise OptionInvalid("tags", f"must be at most {config.TAGS_MAX} names, not {len(tags)}")
    listed = [name(tag, option="tags") for tag in tags]
    if not listed:
        return None
    return codec.encode_json(listed, what="tags", bytes_max=config.META_BYTES_MAX)


def meta_of(meta: Mapping[str, object]) -> str | None:
    """The stored form of `meta`. None if it is empty."""
    if not isinstance(meta, Mapping):
        raise OptionInvalid("meta", f"must be a mapping, not {type(meta).__name__}")
    if not meta:
        return None
    return codec.encode_json(dict(meta), what="meta", bytes_max=config.META_BYTES_MAX)


def _type_shown(value: object) -> str:
    """What was given instead of a list. A string is probably a list without its brackets."""
    return f"the string {value!r}" if isinstance(value, str) else type(value).__name__

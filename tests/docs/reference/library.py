"""The library: every public class and function, from its signature and its docstring."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, is_typeddict

import msgspec

import rowlock
from rowlock import RowlockError, retry, scheduler, server, store, testing
from rowlock.context import Transaction
from rowlock.filters import FilterOptions
from rowlock.job import WorkerVitals
from rowlock.store.methods import Verb
from tests.docs.reference.docstrings import Docstring, attribute_texts, docstring_of
from tests.docs.reference.markdown import anchor, as_cell, code, fenced, joined, prose, table
from tests.docs.reference.signatures import signature_text, type_text
from tests.typing.stubs import signature_of

# What users hold in their hands, but do not import from the package itself.
BESIDE = (Transaction, FilterOptions, WorkerVitals)
FUNCTIONS = {
    retry: ("jitter", "exponential", "doubling", "fixed"),
    testing: tuple(testing.__all__),
    scheduler: ("Scheduler", "Janitor", "declare_schedules"),
    store: ("JobFilter", "KnownPolicy", "NewSchedule", "Settlement"),
    server: ("asgi",),
}
# What engines and tasks use of each other, not users.
PLUMBING = {
    "App": {"asend", "prepare", "send"},
    "Tasks": {"declared_limits", "follow", "nearest", "scheduled"},
    "Task": {"another", "bind", "fields", "is_async", "known_policy", "model", "prepare", "sender"},
    "Limit": {"agrees_with", "bind", "check_job", "declared", "give_to", "place", "place_at"},
    "Rate": {"checked"},
    "TaskCall": set[str](),
    "Store": {"engine", "local"},
    "Lease": {"of_row", "row"},
    "Transaction": {"end"},
    "ManualClock": {"monotonic", "now_us"},
    "JobError": {"time_us"},
    "RowlockPlugin": {"on_app_init", "on_cli_init"},
}
# Nothing of them is for users but that they are there.
OPAQUE = {"AppUnderTest", "NewJob"}
# What users get, and do not make.
GIVEN = {"Context", "Store", "Task", "TaskCall", "Transaction"}


def sections() -> dict[str, str]:
    """A section for each class, and for each module that has functions."""
    made = {f"rowlock.{kind.__name__}": class_section(kind) for kind in public_classes()}
    made |= {f"{kind.__module__}.{kind.__name__}": class_section(kind) for kind in BESIDE}
    return made | {each.__name__: module_section(each, FUNCTIONS[each]) for each in FUNCTIONS}


def public_classes() -> list[type]:
    """The classes of the package, but for errors, which have a page of their own."""
    named = [getattr(rowlock, name) for name in rowlock.__all__]
    classes = [each for each in named if isinstance(each, type)]
    return [each for each in classes if not issubclass(each, RowlockError)]


def class_section(kind: type, title: str = "", *, level: int = 2) -> str:
    """All of a class: what it is, how it is made, and what can be asked of it."""
    title = title or kind.__name__
    told = docstring_of(kind)
    if kind.__name__ in OPAQUE:
        return joined(f"### {title}", prose(told.prose))
    if issubclass(kind, enum.Enum):
        return joined(f"### {title}", prose(told.prose), _members(kind))
    if is_record(kind):
        return joined(f"### {title}", prose(told.prose), _fields(kind))
    if issubclass(kind, BaseException):
        made = fenced(signature_text(title, kind), "py") if "__init__" in vars(kind) else ""
        return joined(f"### {title}", made, prose(told.prose))
    return _big_class(kind, title, level)


def is_record(kind: type) -> bool:
    """Whether it is there to be read."""
    is_struct = issubclass(kind, msgspec.Struct | tuple)
    return is_struct or dataclasses.is_dataclass(kind) or is_typeddict(kind)


def _members(kind: type[enum.Enum]) -> str:
    """The values, and which of them are what its properties ask."""
    texts = attribute_texts(kind)
    asked = [name for name, member in vars(kind).items() if isinstance(member, property)]
    rows = [
        (
            code(each.value),
            as_cell(texts[each.name]),
            *("yes" if getattr(each, name) else "" for name in asked),
        )
        for each in kind
    ]
    return table(["value", "", *map(code, asked)], rows)


def _fields(kind: type) -> str:
    texts = attribute_texts(kind)
    rows = [
        (code(name), code(type_text(annotation)), as_cell(texts.get(name, "")))
        for name, annotation in _annotations(kind).items()
    ]
    return table(["field", "type", ""], [*rows, *_property_rows(kind)])


def _annotations(kind: type) -> dict[str, str]:
    """The fields with their types as they stand in the source."""
    found: dict[str, str] = {}
    for each in reversed(_own(kind)):
        found |= inspect.get_annotations(each)
    hidden = PLUMBING.get(kind.__name__, set())
    shown = {name: text for name, text in found.items() if name not in hidden}
    # Those of a TypedDict are wrapped.
    return {
        name: getattr(text, "__forward_arg__", text)
        for name, text in shown.items()
        if "ClassVar" not in str(text)
    }


def _property_rows(kind: type) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name, member in _members_of(kind):
        if isinstance(member, property | functools.cached_property):
            function = member.fget if isinstance(member, property) else member.func
            answer = type_text(inspect.signature(function).return_annotation)
            text = as_cell(docstring_of(function).prose)
            rows.append((code(name), code(answer), text))
    return rows


def _members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class has of its own, or from a base that is not documented itself."""
    hidden = PLUMBING.get(kind.__name__, set())
    seen: set[str] = set()
    for each in _own(kind):
        for name, member in vars(each).items():
            if not name.startswith("_") and name not in seen | hidden:
                seen.add(name)
                yield name, member


def _own(kind: type) -> list[type]:
    """A class and its bases of ours, without those that are documented, and their own bases."""
    known = {
        base
        for each in public_classes()
        if issubclass(kind, each) and each is not kind
        for base in each.__mro__
    }
    return [
        each for each in kind.__mro__ if each not in known and each.__module__.startswith("rowlock")
    ]


def _big_class(kind: type, title: str, level: int) -> str:
    told, marks = docstring_of(kind), "#" * level
    is_made = kind.__name__ not in GIVEN
    methods = {
        name: _function(member)
        for name, member in _members_of(kind)
        if isinstance(member, FunctionType | staticmethod | classmethod | Verb)
    }
    calls = {name: each for name, each in methods.items() if not twin_of(name, methods)}
    twins = {twin_of(name, methods): name for name in methods if twin_of(name, methods)}
    properties = [*_attribute_rows(kind), *_property_rows(kind)]
    return joined(
        f"{marks} {title}",
        fenced(signature_text(kind.__name__, kind), "py") if is_made else "",
        *_told(told),
        table(["attribute", "type", ""], properties) if properties else "",
        _overview(title, calls, twins),
        *(
            _call(f"#{marks} {title}.{name}", each, _twin_text(name, twins, methods))
            for name, each in calls.items()
        ),
    )


def _attribute_rows(kind: type) -> list[tuple[str, str, str]]:
    """Attributes that have a text below."""
    texts, types = attribute_texts(kind), _annotations(kind)
    names = [name for name in types if name in texts]
    return [(code(name), code(type_text(types[name])), as_cell(texts[name])) for name in names]


def _function(member: Any) -> Callable[..., Any]:
    if isinstance(member, Verb):
        return _method(member)
    function = member if isinstance(member, FunctionType) else member.__func__
    # What a decorator has made of it is called as what it was made from.
    return inspect.unwrap(function)


def _method(verb: Verb) -> Callable[..., Any]:
    """A verb as the method that it is."""

    def method() -> None: ...

    method.__doc__ = f"As `{verb.name[1:]}`." if verb.is_async else verb.op.__doc__
    method.__signature__ = signature_of(verb)  # type: ignore[attr-defined]
    return method


def twin_of(name: str, methods: dict[str, Any]) -> str:
    """The blocking call that an async one is the twin of."""
    if name == "await_":
        return "wait"
    return name[1:] if name.startswith("a") and name[1:] in methods else ""


def _twin_text(name: str, twins: dict[str, str], methods: dict[str, Any]) -> str:
    if name not in twins:
        return ""
    told = docstring_of(methods[twins[name]]).prose
    return prose(told.replace(f"As `{name}`", f"Async: `{twins[name]}`", 1))


def _overview(title: str, calls: dict[str, Any], twins: dict[str, str]) -> str:
    rows = [
        (
            f"[{code(name)}](#{anchor(f'{title}.{name}')})",
            code(twins[name]) if name in twins else "",
            as_cell(docstring_of(each).promise),
        )
        for name, each in calls.items()
    ]
    return table(["call", "async", ""], rows) if rows else ""


def _call(heading: str, function: Callable[..., Any], twin: str = "") -> str:
    name = heading.rpartition(".")[2]
    return joined(
        heading,
        fenced(signature_text(name, function), "py"),
        *_told(docstring_of(function)),
        twin,
    )


def _told(told: Docstring) -> Iterator[str]:
    yield prose(told.prose)
    if told.arguments:
        rows = [(code(name), as_cell(text)) for name, text in told.arguments.items()]
        yield table(["argument", ""], rows)
    if told.answer:
        yield prose(f"Returns {told.answer}")
    if told.errors:
        yield table(["raises", ""], [(code(k), as_cell(text)) for k, text in told.errors.items()])
    if told.example:
        yield fenced(told.example, "py")


def module_section(module: ModuleType, names: tuple[str, ...]) -> str:
    """What users take from a module."""
    parts: list[str] = []
    for name in names:
        value = getattr(module, name)
        full = f"{module.__name__}.{name}"
        if isinstance(value, type):
            parts.append(class_section(value, full, level=3))
        else:
            parts.append(_call(f"### {full}", inspect.unwrap(value)))
    return joined(*parts)

"""Assertions on enqueued jobs, with messages that show what was enqueued instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rowlock import codec
from rowlock.app import App
from rowlock.clock import duration_us
from rowlock.config import SECOND_US
from rowlock.errors import PayloadInvalid
from rowlock.job import Job
from rowlock.limits import Fields, key_text
from rowlock.task import Task, TaskCall
from rowlock.testing.app import AppUnderTest, current, is_any_under_test
from rowlock.testing.frameworks import FRAMEWORKS, FrameworkTask
from rowlock.workflow_info import WorkflowInfo
from rowlock.workflow_rules import WorkflowState

SHOWN_MAX: Final = 5
_PAGE: Final = 1000

_Wanted = Task[..., Any] | TaskCall[..., Any] | FrameworkTask | str


def enqueued(task: _Wanted, /, **payload: object) -> list[Job]:
    """Return the matching jobs that were enqueued in this test, oldest first, in any state.

    Args:
        task: A task, the name of a kind, or `task.using(...)`, whose options must match, too. In
            tests of a Django project, a task of Django's as well.
        payload: Fields that the payload must have. It may have others.

    Raises:
        TypeError: The task has no such parameter.
    """
    app = _app()
    wanted = _wanted(app, task, payload)
    return [job for job in _jobs_of(app, wanted.kind) if not wanted.misfits(job)]


def assert_enqueued(task: _Wanted, /, **payload: object) -> Job:
    """Assert that a matching job was enqueued, and return the first. See `enqueued`.

    Example:
        signup("ada@example.com")
        assert_enqueued(welcome, email="ada@example.com")
        assert_enqueued(remind.using(delay=3600), email="ada@example.com")
    """
    __tracebackhide__ = True
    app = _app()
    wanted = _wanted(app, task, payload)
    jobs = _jobs_of(app, wanted.kind)
    found = [job for job in jobs if not wanted.misfits(job)]
    if not found:
        raise AssertionError(_missing(wanted, jobs, app))
    return found[0]


def refute_enqueued(task: _Wanted, /, **payload: object) -> None:
    """Assert that no matching job was enqueued. See `enqueued`."""
    __tracebackhide__ = True
    app = _app()
    wanted = _wanted(app, task, payload)
    found = [job for job in _jobs_of(app, wanted.kind) if not wanted.misfits(job)]
    if found:
        raise AssertionError(_unwanted(wanted, found))


def _app() -> App:
    """Return the app of the running test: the one under test, else that of a framework's test."""
    if not is_any_under_test():
        for framework in FRAMEWORKS:
            if (app := framework.app()) is not None:
                return app
    return current()


def _delays(app: App) -> Mapping[str, int]:
    """Return the delays of jobs that waited for others. A framework's test does not record them."""
    return app.test_state.delays if isinstance(app, AppUnderTest) else {}


def _sent(app: App) -> Mapping[str, Job]:
    """Return the jobs as they were enqueued. A framework's test does not record them."""
    return app.test_state.sent if isinstance(app, AppUnderTest) else {}


def assert_workflow(
    name: str,
    *,
    state: str | WorkflowState | None = None,
    key: str | None = None,
    tenant: str | None = None,
    jobs: Mapping[str, int] | None = None,
) -> WorkflowInfo:
    """Assert that a matching workflow was enqueued in this test, and return the first.

    Args:
        state: The state that it must be in, such as "succeeded".
        jobs: How many jobs of each kind it must have, with those that were added at run time.
            Kinds that are not named may have any number.

    Example:
        crawl(["https://example.com"])
        rowlock_app.drain()
        assert_workflow("crawl", state="succeeded", jobs={"fetch": 1, "index": 1})
    """
    __tracebackhide__ = True
    app = _app()
    wanted = {"state": None if state is None else WorkflowState(state), "key": key}
    wanted = {name: value for name, value in (wanted | {"tenant": tenant}).items() if value}
    found = _workflows(app)
    named = [each for each in found if each.info.name == name]
    for each in named:
        if not each.misfits(wanted, jobs or {}):
            return each.info
    asked = ", ".join([repr(name), *(f"{each}={value!s}" for each, value in wanted.items())])
    lines = [f"no workflow like this was enqueued: {asked}", ""]
    if not named:
        others = ", ".join(sorted({repr(each.info.name) for each in found}))
        lines.append(f"no workflow has this name, but: {others or 'there are none at all'}")
    for each in named[:SHOWN_MAX]:
        lines.append(f"  {each.info.name} {each.info.id}: {each.info.state}, {each.described()}")
        lines += [f"    {misfit}" for misfit in each.misfits(wanted, jobs or {})]
        lines += [f"    {line}" for line in each.deaths(app)]
    raise AssertionError("\n".join(lines))


@dataclass(frozen=True, slots=True)
class _Found:
    """A workflow, and how many jobs of each kind it has."""

    info: WorkflowInfo
    kinds: Mapping[str, int]

    def misfits(self, wanted: Mapping[str, object], jobs: Mapping[str, int]) -> list[_Misfit]:
        """Return everything that differs."""
        fields = [(name, value, getattr(self.info, name)) for name, value in wanted.items()]
        counts = [
            (f"jobs of {kind!r}", number, self.kinds.get(kind, 0)) for kind, number in jobs.items()
        ]
        return [
            _Misfit(name, value, found)
            for name, value, found in (*fields, *counts)
            if value != found
        ]

    def described(self) -> str:
        return ", ".join(f"{number} of {kind!r}" for kind, number in sorted(self.kinds.items()))

    def deaths(self, app: App) -> list[str]:
        """Return why its jobs are dead, of some."""
        dead = app.workflow_jobs(self.info.id, state="dead", limit=SHOWN_MAX)
        return [f"{job.kind} {job.id} is dead: {job.last_error}" for job in dead]


def _workflows(app: App) -> list[_Found]:
    """Return all workflows, oldest first."""
    found: list[_Found] = []
    cursor = None
    while True:
        page = app.workflows(limit=_PAGE, cursor=cursor)
        for info in page:
            kinds: Counter[str] = Counter()
            for stack in app.workflow_graph(info.id).stacks:
                kinds[stack.kind] += sum(count.value for count in stack.counts.values())
            found.append(_Found(info, kinds))
        if (cursor := page.next) is None:
            return found[::-1]


@dataclass(frozen=True, slots=True)
class _Misfit:
    """A field that differs from what was expected."""

    name: str
    expected: object
    found: object

    def __str__(self) -> str:
        found = "but it is missing" if self.found is _ABSENT else f"but found {self.found!r}"
        return f"{self.name}: expected {self.expected!r}, {found}"


_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class _Expected:
    """The kind, options and payload that a job must have."""

    kind: str
    payload: Mapping[str, object]
    options: Mapping[str, Any]
    sent: Mapping[str, Job]
    # For the calls of a framework's task, which keeps them in another form.
    fields: Fields | None

    def arguments(self, job: Job) -> Mapping[str, object]:
        """Return what a job of this kind was enqueued with, by the names of parameters."""
        return job.payload if self.fields is None else self.fields.with_defaults(job.payload)

    def misfits(self, job: Job) -> list[_Misfit]:
        """Return every field of a job of this kind that differs."""
        arguments = self.arguments(job)
        fields = [
            _Misfit(name, value, arguments.get(name, _ABSENT))
            for name, value in self.payload.items()
            if name not in arguments or value != arguments[name]
        ]
        # As it was enqueued: a retried job has another time.
        sent = self.sent.get(job.id, job)
        return fields + [
            _Misfit(f"option {name}", value, found)
            for name, value in self.options.items()
            if not _fits(name, value, found := _option_of(sent, name))
        ]

    def described(self, job: Job) -> str:
        """Return a line about a job of this kind."""
        shown = self.arguments(job).items()
        fields = ", ".join(f"{name}={value!r}" for name, value in shown)
        return f"{job.kind}({fields}): {job.state} in {job.queue!r}"

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        fields = ", ".join(f"{name}={value!r}" for name, value in self.payload.items())
        return self.kind + (f".using({options})" if options else "") + f"({fields})"


def _wanted(app: App, task: _Wanted, payload: Mapping[str, object]) -> _Expected:
    kind, options = _kind_and_options(task)
    named: object = task.task if isinstance(task, TaskCall) else task
    known = named if isinstance(named, Task) else app.find(kind)
    fields: Fields | None = None
    if known is not None:
        _check_names(kind, known.fields, payload)
        fields = None if known.fields is known.schema else known.fields
    stored = {name: _stored(kind, name, value) for name, value in payload.items()}
    return _Expected(kind, stored, options, _sent(app), fields)


def _kind_and_options(task: _Wanted) -> tuple[str, Mapping[str, Any]]:
    match task:
        case str():
            return task, {}
        case Task():
            return task.name, {}
        case TaskCall():
            return task.task.name, _without_defaults(task.chosen)
    for framework in FRAMEWORKS:
        if (wanted := framework.wanted(task)) is not None:
            return wanted.kind, _without_defaults(wanted.options)
    raise TypeError(f"must be a task, task.using(...) or the name of a kind, not {task!r}")


_UNSHOWN: Final = frozenset({"key_hold", "if_held", "quiet", "max_wait", "expires"})


def _without_defaults(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in chosen.items() if _is_chosen(name, value)}


def _is_chosen(name: str, value: object) -> bool:
    # Options that `using` did not get have these values, except `keep`, where None is a choice. A
    # job does not show how long its key is held, nor what an enqueue did to another.
    return name == "keep" or (name not in _UNSHOWN and value not in (None, (), {}))


def _check_names(kind: str, fields: Fields, payload: Mapping[str, object]) -> None:
    """Reject names that no job can have: they would match none, and every `refute` would pass."""
    unknown = sorted(payload.keys() - {*fields.parameters})
    if unknown and not fields.takes_extra:
        raise TypeError(
            f"{kind} has no parameter {', '.join(map(repr, unknown))}; "
            f"it takes {', '.join(fields.parameters) or 'none'}"
        )


def _stored(kind: str, name: str, value: object) -> object:
    """Return a value as a payload stores it. One that compares itself (`ANY`, `approx`) stays."""
    try:
        stored: object = codec.decode(codec.encode_payload(kind, {name: value}))[name]
    except PayloadInvalid:
        return value
    return stored


def _option_of(job: Job, name: str) -> object:
    match name:
        case "delay" if (delay := _delays(_app()).get(job.id)) is not None:
            return delay / SECOND_US
        case "delay":
            return (job.run_at - job.created_at).total_seconds()
        case _:
            return getattr(job, name)


def _fits(name: str, value: Any, found: Any) -> bool:
    match name:
        case "delay" | "keep" | "timeout" if value is not None:
            us = duration_us(value, option=name)
            return bool(found is not None and us == round(found * SECOND_US))
        case "tags":
            return set(value) <= set(found)
        case "meta":
            return all(item in found.items() for item in value.items())
        case "id":
            return bool(str(value) == found)
        case "limit_key":
            return bool(key_text(value) == found)
        case _:
            return bool(value == found)


def _jobs_of(app: App, kind: str | None) -> list[Job]:
    """Return all enqueued jobs of a kind, or of all kinds if it is None, oldest first."""
    found: dict[str, Job] = {}
    cursor = None
    while True:
        page = app.list(kind=kind, limit=_PAGE, cursor=cursor, full=True)
        found.update((job.id, job) for job in page)
        if (cursor := page.next) is None:
            break
    for job in _sent(app).values():
        # Jobs that are not kept have no row after their success.
        if kind in (None, job.kind):
            found.setdefault(job.id, job)
    return sorted(found.values(), key=lambda job: (job.created_at, job.id))


def _missing(wanted: _Expected, jobs: Sequence[Job], app: App) -> str:
    lines = [f"no job like this was enqueued: {wanted}"]
    if not jobs:
        others = Counter(job.kind for job in _jobs_of(app, None))
        counts = ", ".join(f"{number} of {kind!r}" for kind, number in sorted(others.items()))
        lines += ["", f"no job of this kind was enqueued, but: {counts or 'no jobs at all'}"]
        if app.find(wanted.kind) is None:
            lines.append(f"the app has no task {wanted.kind!r}{app.nearest(wanted.kind)}")
        return "\n".join(lines)
    nearest = sorted(jobs, key=lambda job: len(wanted.misfits(job)))
    lines += ["", f"{_counted(jobs)} enqueued of this kind, the most similar first:"]
    for job in nearest[:SHOWN_MAX]:
        lines.append(f"  {wanted.described(job)}")
        lines += [f"    {misfit}" for misfit in wanted.misfits(job)]
    return "\n".join(lines + _rest(jobs))


def _unwanted(wanted: _Expected, found: Sequence[Job]) -> str:
    lines = [f"{_counted(found)} enqueued like {wanted}, but none should be:"]
    lines += [f"  {wanted.described(job)}" for job in found[:SHOWN_MAX]]
    return "\n".join(lines + _rest(found))


def _counted(jobs: Sequence[Job]) -> str:
    return "1 job was" if len(jobs) == 1 else f"{len(jobs)} jobs were"


def _rest(jobs: Sequence[Job]) -> list[str]:
    left = len(jobs) - SHOWN_MAX
    return [f"  and {left} more"] if left > 0 else []


__all__ = ["SHOWN_MAX", "assert_enqueued", "assert_workflow", "enqueued", "refute_enqueued"]

"""`rowlock enqueue`: one job from the command line, or many from lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

import click

from rowlock.cli import EXIT_INVALID, Target, show
from rowlock.cli.options import json_object, json_option, moment, seconds, time_to_come
from rowlock.cli.progress import progress
from rowlock.errors import OptionInvalid, RowlockError

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.job import Job
    from rowlock.store import NewJob

# One transaction: fast, and short enough to hold up nobody else for long.
BATCH_LINES: Final = 1_000
# So is memory bounded where payloads are large.
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
# A payload of the largest size with every character escaped, and its options.
LINE_BYTES_MAX: Final = 8 * 1024 * 1024
_NOT_FOR_LINES: Final = frozenset({"conn"})


@click.command()
@click.argument("kind", required=False)
@click.argument("payload", required=False, metavar="[JSON]")
@click.option("--key", metavar="KEY", help="One job in flight for this key.")
@click.option(
    "--key-hold",
    metavar="HOLD",
    help="For how long: `in_flight` (default), `kept`, or a duration from now.",
)
@click.option(
    "--queue", metavar="QUEUE", help="Where it waits, instead of the task's queue or `default`."
)
@click.option("--priority", type=int, metavar="N", help="-100 to 100, higher first.")
@click.option("--delay", type=seconds, metavar="DURATION", help="Not before so long from now.")
@click.option("--run-at", type=time_to_come, metavar="TIME", help="Not before this ISO 8601 time.")
@click.option("--tenant", metavar="TENANT", help="Whose job it is.")
@click.option("--max-attempts", type=int, metavar="N", help="Given up after so many.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="A name to find it by; may be given several times.",
)
@click.option("--id", metavar="UUID", help="The job's id: given again, it is the same job.")
@click.option(
    "--many",
    type=click.File("rb"),
    metavar="FILE",
    help="Read jobs from lines of JSON; `-` is stdin.",
)
@json_option("the job; with --many, how many were enqueued and how many existed")
@click.pass_obj
def enqueue(
    target: Target,
    /,
    *,
    kind: str | None,
    payload: str | None,
    many: IO[bytes] | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Enqueue a job of KIND with a JSON object as its payload; print its id and its state.

    With --many, each line is {"kind": ..., "payload": {...}} and options by their names in Python;
    if KIND is given, each line is a payload. Options given here hold for every line that has none
    of its own; keys and ids come from the lines. Lines are written 1,000 at a time, each time all
    or none.
    """
    # The options of a job keep their names from here to `App.enqueue`, which checks them.
    options = _chosen(given)
    if many is None:
        if kind is None:
            raise click.UsageError("name the KIND of the job, or give --many")
        fields = {} if payload is None else json_object(payload, option="payload")
        with target.open_app() as app:
            _print_job(app.enqueue(kind, fields, **options), as_json=as_json)
        return
    if payload is not None or "key" in options or "id" in options:
        raise click.UsageError("--many takes payloads, keys and ids from its lines")
    with target.open_app() as app:
        _enqueue_lines(app, many, Line(kind, options), as_json=as_json)


def _chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as `App.enqueue` takes them."""
    options = {name: value for name, value in given.items() if value is not None and value != ()}
    if "key_hold" in options:
        options["key_hold"] = _hold(options["key_hold"])
    return options


def _hold(text: str) -> str | float:
    if text in ("in_flight", "kept"):
        return text
    try:
        return seconds(text)
    except click.BadParameter as error:
        problem = f"{error.message}, nor in_flight or kept"
        raise click.BadParameter(problem, param_hint="--key-hold") from None


def _print_job(job: Job, *, as_json: bool) -> None:
    if as_json:
        show.print_json(show.job_document(job))
    else:
        click.echo(f"{job.id} {job.state}{'' if job.created else ' (existed already)'}")


@dataclass(frozen=True, slots=True)
class Line:
    """How lines are read: of one kind, or each with its own; with options they may lack."""

    kind: str | None
    options: Mapping[str, Any]

    def item(self, text: str) -> dict[str, Any]:
        """A line as `App.enqueue_many` takes it."""
        value = json_object(text, option="line")
        if self.kind is not None:
            return {**self.options, "kind": self.kind, "payload": value}
        for name in _NOT_FOR_LINES & value.keys():
            raise OptionInvalid(name, "there is no such option")
        if "kind" not in value:
            raise OptionInvalid("kind", "is missing; name it in each line, or as KIND")
        payload = value.get("payload")
        if payload is not None and not isinstance(payload, dict):
            raise OptionInvalid("payload", "must be a JSON object")
        own = {name: _timed(name, each) for name, each in value.items()}
        return {**self.options, **own}


def _timed(name: str, value: Any) -> Any:
    if name != "run_at" or not isinstance(value, str):
        return value
    try:
        return moment(value)
    except ValueError as error:
        raise OptionInvalid("run_at", f"{value!r} {error}") from None


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Checked jobs of consecutive lines, and the number of the last one."""

    jobs: list[NewJob]
    last_line: int


def _enqueue_lines(app: App, file: IO[bytes], line: Line, *, as_json: bool) -> None:
    created = existing = last_line = 0
    try:
        with progress("enqueuing", noun="job") as moved:
            for batch in _batches(app, file, line):
                answers = app.send(batch.jobs, conn=None)
                fresh = sum(job.created for job in answers)
                created, existing = created + fresh, existing + len(answers) - fresh
                last_line = batch.last_line
                moved(created + existing)
    except BadLineError as error:
        kept = f"lines 1 to {last_line} are enqueued" if last_line else "nothing is enqueued"
        show.fail(f"{error} ({kept})", exit_code=EXIT_INVALID)
    if as_json:
        show.print_json({"enqueued": created, "existing": existing})
    else:
        click.echo(f"enqueued {show.plural(created, 'job')}, {existing:,} existed already")


class BadLineError(Exception):
    """A line that can't be enqueued: its message names it."""


def _batches(app: App, file: IO[bytes], line: Line) -> Iterator[LineBatch]:
    jobs, size, number = list[Any](), 0, 0
    while raw := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if not raw.strip():
            continue
        jobs.append(_job(app, raw, line, number=number))
        size += len(raw)
        if len(jobs) >= BATCH_LINES or size >= BATCH_BYTES_MAX:
            yield LineBatch(jobs, number)
            jobs, size = [], 0
    if jobs:
        yield LineBatch(jobs, number)


def _job(app: App, raw: bytes, line: Line, *, number: int) -> NewJob:
    if len(raw) > LINE_BYTES_MAX:
        raise BadLineError(f"line {number}: longer than {LINE_BYTES_MAX:,} bytes")
    try:
        return app.prepare(line.item(raw.decode("utf-8")))
    except UnicodeDecodeError:
        raise BadLineError(f"line {number}: not UTF-8") from None
    except (RowlockError, TypeError) as error:
        raise BadLineError(f"line {number}: {error}") from error

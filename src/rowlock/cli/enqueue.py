"""`rowlock enqueue`: enqueue one job from the command line, or many from lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

import click

from rowlock import config
from rowlock.cli import EXIT_INVALID, Target, show
from rowlock.cli.options import json_object, json_option, moment, seconds, time_to_come
from rowlock.cli.progress import progress
from rowlock.errors import OptionInvalid, RowlockError

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.job import Job
    from rowlock.store import NewJob

# Lines per transaction: fast, and short enough not to hold up others for long.
BATCH_LINES: Final = config.BATCH_ROWS
# Bounds memory where payloads are large.
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
# Room for the largest payload with every character escaped, and for its options.
LINE_BYTES_MAX: Final = config.HTTP_JOB_BYTES_MAX
_NOT_FOR_LINES: Final = frozenset({"conn"})


@click.command()
@click.argument("kind", required=False)
@click.argument("payload", required=False, metavar="[JSON]")
@click.option("--key", metavar="KEY", help="Allow only one job in flight with this key.")
@click.option(
    "--key-hold",
    metavar="HOLD",
    help="How long --key is unique: `in_flight` (default), `until_started` (default with --quiet), "
    "`kept`, or a duration from now.",
)
@click.option(
    "--if-held",
    type=click.Choice(["keep", "replace"]),
    help="Keep the job that holds --key as it is (default), or replace its payload and options.",
)
@click.option(
    "--quiet",
    type=seconds,
    metavar="DURATION",
    help="Run it once no enqueue of --key has come for this long.",
)
@click.option(
    "--max-wait",
    type=seconds,
    metavar="DURATION",
    help="With --quiet: run it at most this long after it was created.",
)
@click.option(
    "--queue", metavar="QUEUE", help="Queue of the job, instead of the task's or `default`."
)
@click.option(
    "--priority", type=int, metavar="N", help="Priority from -100 to 100. Higher runs first."
)
@click.option(
    "--delay", type=seconds, metavar="DURATION", help="Run it no earlier than this long from now."
)
@click.option(
    "--run-at", type=time_to_come, metavar="TIME", help="Run it no earlier than this ISO 8601 time."
)
@click.option("--tenant", metavar="TENANT", help="Tenant that owns the job.")
@click.option("--max-attempts", type=int, metavar="N", help="Attempts before the job is dead.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Tag to find the job by. Can be repeated.",
)
@click.option("--id", metavar="UUID", help="Id of the job. Sending it again enqueues nothing.")
@click.option(
    "--many",
    type=click.File("rb"),
    metavar="FILE",
    help="Read jobs from the lines of a JSON file. `-` is stdin.",
)
@click.option(
    "--any-kind",
    is_flag=True,
    help="Accept kinds that --app has no task for. A worker with another app runs them.",
)
@json_option("the job, or with --many how many were enqueued and how many existed")
@click.pass_obj
def enqueue(
    target: Target,
    /,
    *,
    kind: str | None,
    payload: str | None,
    many: IO[bytes] | None,
    any_kind: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Enqueue a job of KIND with a JSON object as its payload.

    Prints its id and state.

    With --many, each line is {"kind": ..., "payload": {...}} with options by their Python names. If
    KIND is given, each line is a payload. Options on the command line apply to every line without
    its own. Keys and ids come from the lines. Lines are enqueued 1,000 per transaction.
    """
    # The options keep their names from here to `App.enqueue`, which checks them.
    options = _chosen(given)
    if many is None:
        if kind is None:
            raise click.UsageError("give the KIND of the job, or --many")
        fields = {} if payload is None else json_object(payload, option="payload")
        with target.open_app(creates=True) as app:
            if not any_kind:
                _check_kind(app, kind)
            _print_job(app.enqueue(kind, fields, **options), as_json=as_json)
        return
    if payload is not None or "key" in options or "id" in options:
        raise click.UsageError("--many takes payloads, keys and ids from its lines")
    with target.open_app(creates=True) as app:
        _enqueue_lines(app, many, Line(kind, options, any_kind=any_kind), as_json=as_json)


def _check_kind(app: App, kind: object) -> None:
    """Refuse a kind that the app has no task for. Without --app, there are no tasks to compare."""
    if app.kinds and isinstance(kind, str) and app.find(kind) is None:
        raise OptionInvalid(
            "kind",
            f"the app has no task {kind!r}{app.nearest(kind) or '.'} To enqueue it for a worker "
            "with another app, add --any-kind",
        )


def _chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as `App.enqueue` takes them."""
    options = {name: value for name, value in given.items() if value is not None and value != ()}
    if "key_hold" in options:
        options["key_hold"] = _hold(options["key_hold"])
    return options


def _hold(text: str) -> str | float:
    if text in ("in_flight", "until_started", "kept"):
        return text
    try:
        return seconds(text)
    except click.BadParameter as error:
        problem = f"{error.message}, nor in_flight, until_started or kept"
        raise click.BadParameter(problem, param_hint="--key-hold") from None


def _print_job(job: Job, *, as_json: bool) -> None:
    if as_json:
        show.print_json(show.job_document(job))
    else:
        click.echo(f"{job.id} {job.state}{'' if job.created else ' (existed already)'}")


@dataclass(frozen=True, slots=True)
class Line:
    """How to read lines: their kind, unless each names its own, and options they may lack."""

    kind: str | None
    options: Mapping[str, Any]
    any_kind: bool

    def item(self, text: str) -> dict[str, Any]:
        """Return a line as `App.enqueue_many` takes it."""
        value = json_object(text, option="line")
        if self.kind is not None:
            return {**self.options, "kind": self.kind, "payload": value}
        for name in _NOT_FOR_LINES & value.keys():
            raise OptionInvalid(name, "there is no such option")
        if "kind" not in value:
            raise OptionInvalid("kind", "is missing; set it in each line, or pass KIND")
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
    """Checked jobs of consecutive lines, and the number of the last line."""

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
    """A line can't be enqueued. The message says which."""


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
        item = line.item(raw.decode("utf-8"))
        if not line.any_kind:
            _check_kind(app, item["kind"])
        return app.prepare(item)
    except UnicodeDecodeError:
        raise BadLineError(f"line {number}: not UTF-8") from None
    except (RowlockError, TypeError) as error:
        raise BadLineError(f"line {number}: {error}") from error

"""`rowlock limits`: list and show limits, change their numbers, pause and resume them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rowlock import config
from rowlock.cli import HintingGroup, Target, show
from rowlock.cli.options import json_option, seconds

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.job import Count
    from rowlock.limit_info import LimitInfo, LimitKeyInfo, LimitRules

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=HintingGroup)
def limits() -> None:
    """List and show limits, change their numbers, pause and resume them."""


@limits.command("list")
@json_option("all fields of each limit")
@click.pass_obj
def list_limits(target: Target, *, as_json: bool) -> None:
    """List the limits by name: what each allows, and how many jobs run and wait."""
    from rowlock.cli.workers import now

    with target.open_app() as app:
        found = list(_every(app))
    if as_json:
        show.print_json([document(limit) for limit in found])
    else:
        show.print_tables(limits_table(found, now=now()))


def _every(app: App) -> Iterator[LimitInfo]:
    after = ""
    while page := app.limits(after=after):
        yield from page
        after = page[-1].name


def document(record: Any) -> dict[str, object]:
    """Return a limit or a key as JSON: its fields by name, times as ISO 8601."""
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(record)
    return found


def limits_table(found: Sequence[LimitInfo], *, now: datetime) -> show.TextTable:
    """Return a table with one row per limit."""
    numbers = ["running", "waiting", "oldest", "rate"]
    names = ("limit", "status", *numbers, "keys", "per key", "paused keys")
    table = show.TextTable(
        show.columns(*names, right=[*numbers, "paused keys"], flexible=["limit", "keys"]),
        empty="no limits yet: a worker writes those of its tasks when it starts",
        dropped=("paused keys", "oldest", "rate", "per key", "keys"),
    )
    for limit in found:
        table.add(
            show.Cell(limit.name, "bold"),
            _status(limit, now=now),
            _running(limit.running, limit.rules.concurrency),
            _count(limit.waiting),
            show.age(limit.oldest_waiting_seconds),
            limit.rules.rate or "-",
            limit.per or "-",
            _each(limit),
            "-" if limit.per is None else _count(limit.paused_keys),
        )
    return table


def _status(limit: LimitInfo, *, now: datetime) -> show.Cell:
    if limit.declared is None:
        return show.Cell("not declared", "red")
    if not limit.is_paused and _is_full(limit.running, limit.rules.concurrency):
        return show.Cell("full", "cyan")
    return _opening(limit, now=now)


def _opening(record: LimitInfo | LimitKeyInfo, *, now: datetime) -> show.Cell:
    """Whether it is paused, or when its rate allows the next start."""
    if record.is_paused:
        end = record.paused_until
        return show.Cell("paused" if end is None else f"paused for {_left(end, now)}", "yellow")
    if record.opens_at is not None:
        return show.Cell(f"next in {_left(record.opens_at, now)}", "cyan")
    return show.Cell("open", "green")


def _left(moment: datetime, now: datetime) -> str:
    return show.short_age((moment - now).total_seconds())


def _is_full(running: Count, concurrency: int | None) -> bool:
    return concurrency is not None and running.value >= concurrency


def _running(running: Count, concurrency: int | None) -> show.Cell:
    text = show.number(running.value, exact=running.exact)
    style = "blue" if running.value else "dim"
    return show.Cell(text if concurrency is None else f"{text}/{concurrency:,}", style)


def _count(count: Count) -> show.Cell:
    text = show.number(count.value, exact=count.exact)
    return show.Cell(text, "" if count.value else "dim")


def _each(limit: LimitInfo) -> str:
    """What one key may do."""
    if limit.is_ordered:
        return "in order"
    rules = limit.rules
    most = None if rules.concurrency_per_key is None else f"{rules.concurrency_per_key:,}"
    return ", ".join(part for part in (most, rules.rate_per_key) if part) or "-"


@limits.command("show")
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(1, config.KEYS_LISTED_MAX),
    default=50,
    show_default=True,
    help="Most keys to list.",
)
@click.option(
    "--after",
    metavar="KEY",
    help="List the keys in the order of their names, those after this one. An empty text begins"
    " with the first.",
)
@json_option("the fields of the limit, and `keys`, `is_cut` and `next`")
@click.pass_obj
def show_limit(target: Target, *, name: str, limit: int, after: str | None, as_json: bool) -> None:
    """Show a limit: its numbers, and its keys, the busiest first.

    Keys are listed that have jobs which run or wait, that are paused, or that have numbers of their
    own. The busiest are found among the first 1,000.
    """
    from rowlock.cli.workers import now
    from rowlock.errors import NotFound

    with target.open_app() as app:
        found = app.limits([name])
        if not found:
            raise NotFound(f"there is no limit {name!r}; see them all with: rowlock limits list")
        is_known = found[0].declared is not None
        keys = app.limit_keys(name, limit=limit, after=after) if is_known else None
    if as_json:
        listed = {"keys": [], "is_cut": False, "next": None} if keys is None else document(keys)
        show.print_json({**document(found[0]), **listed})
        return
    show.print_fields(_details(found[0], now=now()))
    if keys is None or found[0].per is None:
        return
    click.echo()
    show.print_tables(keys_table(keys.keys, now=now()))
    if keys.next is not None:
        click.echo(f"more: --after {keys.next}", err=True)
    elif keys.is_cut:
        click.echo("there are more keys: see all in order with --after ''", err=True)


def _details(limit: LimitInfo, *, now: datetime) -> Iterator[tuple[str, show.Cell | str]]:
    yield "limit", show.Cell(limit.name, "bold")
    yield "status", _status(limit, now=now)
    if limit.paused_reason is not None:
        yield "reason", limit.paused_reason
    yield "running", _running(limit.running, limit.rules.concurrency)
    oldest = limit.oldest_waiting_seconds
    waiting = show.number(limit.waiting.value, exact=limit.waiting.exact)
    yield "waiting", waiting if oldest is None else f"{waiting}, the oldest for {show.age(oldest)}"
    yield from _numbers(limit)
    if limit.per is not None:
        yield "per", limit.per
    if limit.is_ordered:
        then = "pauses its key" if limit.on_dead == "pause" else "lets the next one start"
        yield "order", f"one at a time per key, in the order of enqueue; a dead job {then}"
    if limit.weights:
        weights = [f"{key} {weight}" for key, weight in sorted(limit.weights.items())]
        yield "weights", ", ".join([*weights[:10], *(["…"] if len(weights) > 10 else [])])
    if limit.declared_at is not None:
        yield "declared", f"{limit.declared_at:%Y-%m-%d %H:%M:%S}Z"


_NUMBERS = {
    "concurrency": "concurrency",
    "rate": "rate",
    "concurrency_per_key": "concurrency per key",
    "rate_per_key": "rate per key",
}


def _numbers(limit: LimitInfo) -> Iterator[tuple[str, show.Cell | str]]:
    """The numbers that count, each with the declared one if another was set."""
    for field, name in _NUMBERS.items():
        counts = _number(limit.rules, field)
        if counts is None:
            continue
        if limit.chosen is not None and _number(limit.chosen, field) is not None:
            declared = None if limit.declared is None else _number(limit.declared, field)
            text = "none" if declared is None else declared
            yield name, show.Cell(f"{counts} (set; declared: {text})", "yellow")
        else:
            yield name, counts


def _number(rules: LimitRules, field: str) -> str | None:
    value = getattr(rules, field)
    if isinstance(value, int):
        return f"{value:,}"
    burst = getattr(rules, field.replace("rate", "burst"))
    return value if value is None or burst is None else f"{value}, up to {burst:,} at once"


def keys_table(keys: Sequence[LimitKeyInfo], *, now: datetime) -> show.TextTable:
    """Return a table with one row per key."""
    numbers = ["running", "waiting", "rate", "weight"]
    names = ("key", "status", *numbers, "note")
    table = show.TextTable(
        show.columns(*names, right=numbers, flexible=["key", "note"]),
        empty="no keys: no job runs or waits, and none is paused or has numbers of its own",
        dropped=("note", "weight", "rate"),
    )
    for key in keys:
        is_full = not key.is_paused and _is_full(key.running, key.concurrency)
        status = show.Cell("full", "cyan") if is_full else _opening(key, now=now)
        own = "own numbers" if key.is_own else ""
        note = "; ".join(part for part in (own, key.paused_reason) if part)
        table.add(
            show.Cell(key.key or "(none)", "bold" if key.key else "dim"),
            status,
            _running(key.running, key.concurrency),
            _count(key.waiting),
            key.rate or "-",
            str(key.weight),
            show.Cell(note, "dim"),
        )
    return table


def key_option(help: str) -> Callable[[Command], Command]:
    """Add `--key`."""
    return click.option("--key", metavar="KEY", help=help)


@limits.command("set")
@click.argument("name")
@key_option("Only for this key: --concurrency, --rate and --weight are its own then.")
@click.option("--concurrency", type=int, metavar="N", help="How many jobs may run at once.")
@click.option(
    "--rate", metavar="RATE", help='Most starts per period: "100/s", "10/m", "100/s burst 20".'
)
@click.option(
    "--concurrency-per-key",
    type=int,
    metavar="N",
    help="For every key that has no number of its own.",
)
@click.option("--rate-per-key", metavar="RATE", help="For every key that has no rate of its own.")
@click.option(
    "--weight", type=int, metavar="N", help="How many jobs of the key may start in one turn."
)
@click.pass_obj
def set_limit(
    target: Target,
    *,
    name: str,
    key: str | None,
    concurrency: int | None,
    rate: str | None,
    concurrency_per_key: int | None,
    rate_per_key: str | None,
    weight: int | None,
) -> None:
    """Use other numbers for a limit, or for one key, until they are unset.

    They apply to all workers at once, and survive deploys. Running jobs continue.
    """
    from rowlock.limits import chosen_numbers

    chosen = chosen_numbers(
        key=key,
        concurrency=concurrency,
        rate=rate,
        concurrency_per_key=concurrency_per_key,
        rate_per_key=rate_per_key,
        weight=weight,
    )
    with target.open_app() as app:
        app.store.set_limit(name, _checked(key), chosen)
    _print_done("set", name, key)


@limits.command()
@click.argument("name")
@key_option("Only what was set for this key.")
@click.pass_obj
def unset(target: Target, *, name: str, key: str | None) -> None:
    """Go back to the declared numbers, for a limit or for one key.

    Without --key, numbers of keys stay.
    """
    with target.open_app() as app:
        app.store.unset_limit(name, _checked(key))
    _print_done("unset", name, key)


@limits.command()
@click.argument("name")
@key_option("Only this key.")
@click.option(
    "--seconds",
    "duration",
    type=seconds,
    metavar="DURATION",
    help="For this long (90, 5m, 2h). By default until it is resumed.",
)
@click.option("--reason", metavar="TEXT", help="Shown to those who ask why a job waits.")
@click.pass_obj
def pause(
    target: Target, *, name: str, key: str | None, duration: float | None, reason: str | None
) -> None:
    """Pause a limit, or one key: no job starts there for some time, or until it is resumed.

    Jobs can still be enqueued, and running jobs continue.
    """
    with target.open_app() as app:
        app.store.pause_limit(name, _checked(key), duration, reason=reason)
    _print_done("paused", name, key)


@limits.command()
@click.argument("name")
@key_option("Only this key.")
@click.pass_obj
def resume(target: Target, *, name: str, key: str | None) -> None:
    """Resume a paused limit, or one key. A key that was paused alone is resumed alone."""
    with target.open_app() as app:
        app.store.resume_limit(name, _checked(key))
    _print_done("resumed", name, key)


def _checked(key: str | None) -> str | None:
    from rowlock.limits import key_text

    return None if key is None else key_text(key, option="key")


def _print_done(done: str, name: str, key: str | None) -> None:
    click.echo(f"{done} {show.escaped(name if key is None else f'{name}/{key}')}")

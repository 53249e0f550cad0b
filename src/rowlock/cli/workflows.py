"""`rowlock workflows`: list workflows, show them as trees, cancel and retry them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from rowlock.cli import Target, show
from rowlock.cli.jobs import LIMIT_DEFAULT, LIMIT_MAX, STATES, each, page_options, print_page
from rowlock.cli.options import json_option
from rowlock.cli.queues import count_cell

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.job import Count, Job, JobState
    from rowlock.workflow_info import WorkflowGraph, WorkflowInfo, WorkflowStack

WORKFLOW_STATES: Final = ("waiting", "running", "succeeded", "dead", "cancelled")
COLUMNS: Final = ("waiting", "ready", "running", "succeeded", "dead", "cancelled")
# The times of a stack are those of its jobs, which are read for small stacks alone.
TIMED_JOBS_MAX: Final = 100
TIMED_STACKS_MAX: Final = 50


@click.group()
def workflows() -> None:
    """List workflows, show them as trees, cancel and retry them."""


@workflows.command("list")
@click.option("--name", metavar="NAME", help="Only workflows of this name.")
@click.option("--state", type=click.Choice(WORKFLOW_STATES), help="Only workflows in this state.")
@click.option("--tenant", metavar="TENANT", help="Only workflows of this tenant.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="Most workflows to list.",
)
@click.option(
    "--cursor",
    metavar="TEXT",
    help="Continue after the previous page. Its cursor is printed on stderr, and is `next` in"
    " JSON.",
)
@json_option(
    "one line per workflow, and a last one with `next`, the cursor of the following page or null"
)
@click.pass_obj
def list_workflows(
    target: Target,
    *,
    name: str | None,
    state: str | None,
    tenant: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List workflows, newest first: their states, and how many jobs are in which state."""
    from rowlock.cli.workers import now

    with target.open_app() as app:
        page = app.workflows(name=name, state=state, tenant=tenant, limit=limit, cursor=cursor)
    if as_json:
        for flow in page:
            click.echo(show.as_json(document(flow)))
        click.echo(show.as_json({"next": page.next}))
        return
    show.print_tables(workflows_table(page.workflows, now=now()))
    if page.next is not None:
        click.echo(f"more: --cursor {page.next}", err=True)


def document(record: Any) -> dict[str, object]:
    """Return a workflow or its graph as JSON: its fields by name, times as ISO 8601."""
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(record)
    return found


def workflows_table(found: Sequence[WorkflowInfo], *, now: datetime) -> show.TextTable:
    """Return a table with one row per workflow."""
    numbers = list(COLUMNS)
    table = show.TextTable(
        show.columns(
            "id", "name", "state", *numbers, "begun", "key", right=numbers, flexible=["name", "key"]
        ),
        empty="no workflows",
        dropped=("key", "begun", "cancelled", "waiting", "ready"),
    )
    for flow in found:
        table.add(
            flow.id,
            show.Cell(flow.name, "bold"),
            show.state_cell(flow.state),
            *_cells(flow.counts),
            f"{show.short_age((now - flow.created_at).total_seconds())} ago",
            flow.key or "-",
        )
    return table


def _cells(counts: dict[JobState, Count]) -> Iterator[show.Cell]:
    from rowlock.job import Count, JobState

    for state in COLUMNS:
        yield count_cell(state, counts.get(JobState(state), Count(0)))


@workflows.command("show")
@click.argument("id")
@click.option("--mermaid", is_flag=True, help="Print the graph in Mermaid's notation instead.")
@json_option("`workflow`, and `stacks`: jobs that are alike, and the stacks that they wait for")
@click.pass_obj
def show_workflow(target: Target, *, id: str, mermaid: bool, as_json: bool) -> None:
    """Show a workflow as a tree: jobs of one kind that wait for the same are one line.

    A line that waits for several others is below the last of them, and names the rest. Dead jobs
    are listed after the tree.
    """
    from rowlock.cli.workers import now

    if mermaid and as_json:
        raise click.UsageError("give either --mermaid or --json")
    with target.open_app() as app:
        graph = app.workflow_graph(id)
        if mermaid:
            click.echo(show.escaped_lines(graph.mermaid()), nl=False)
            return
        if as_json:
            show.print_json(document(graph))
            return
        times = _times(app, graph, now=now())
        dead = app.workflow_jobs(id, state="dead", limit=_DEAD_SHOWN).jobs
    show.print_fields(_details(graph.workflow, now=now()))
    click.echo()
    show.print_tables(tree_table(graph.stacks, times))
    if dead:
        click.echo()
        for job in dead:
            text = f"{job.kind} {job.id} is dead: {job.last_error or 'no error was stored'}"
            show.print_wrapped(show.escaped(text), indent=2, style="red")
        advice = f"→ continue from there with: rowlock workflows retry {graph.workflow.id}"
        show.print_wrapped(advice, indent=2, style="dim")


_DEAD_SHOWN: Final = 5


def _details(flow: WorkflowInfo, *, now: datetime) -> Iterator[tuple[str, show.Cell | str]]:
    yield "workflow", show.Cell(flow.name, "bold")
    yield "id", flow.id
    yield "state", show.state_cell(flow.state)
    for name, value in (("key", flow.key), ("tenant", flow.tenant), ("begun by", flow.parent)):
        if value is not None:
            yield name, value
    yield "created", _moment(flow.created_at, now=now)
    if flow.ended_at is not None:
        took = show.age((flow.ended_at - flow.created_at).total_seconds())
        yield "ended", f"{_moment(flow.ended_at, now=now)}, after {took}"
    if flow.deadline is not None:
        yield "deadline", _moment(flow.deadline, now=now)
    if flow.not_needed.value:
        count = flow.not_needed
        yield "not needed", show.number(count.value, exact=count.exact)
    if flow.meta:
        yield "meta", show.as_json(flow.meta)


def _moment(moment: datetime, *, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    near = f"{show.short_age(seconds)} ago" if seconds >= 0 else f"in {show.short_age(-seconds)}"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z ({near})"


def _times(app: App, graph: WorkflowGraph, *, now: datetime) -> dict[str, str]:
    """Return how long the jobs of small stacks took, or have been running."""
    small = [
        stack
        for stack in graph.stacks
        if 0 < sum(count.value for count in stack.counts.values()) <= TIMED_JOBS_MAX
    ]
    found: dict[str, str] = {}
    for stack in small[:TIMED_STACKS_MAX]:
        page = app.workflow_jobs(graph.workflow.id, stack=stack.id, limit=TIMED_JOBS_MAX)
        found[stack.id] = time_of(page.jobs, now=now)
    return found


def time_of(jobs: Sequence[Job], *, now: datetime) -> str:
    """Return the time from the first start of these jobs to their last end, or until now."""
    starts = [job.started_at for job in jobs if job.started_at is not None]
    if not starts:
        return "-"
    ends = [job.finished_at for job in jobs if job.finished_at is not None]
    if len(ends) < len(jobs):
        return f"for {show.short_age((now - min(starts)).total_seconds())}"
    return f"took {show.age((max(ends) - min(starts)).total_seconds())}"


def tree_table(stacks: Sequence[WorkflowStack], times: dict[str, str]) -> show.TextTable:
    """Return a table with one row per stack, each below the last one that it waits for."""
    numbers = [*COLUMNS]
    table = show.TextTable(
        show.columns("jobs", *numbers, "time", "note", right=numbers, flexible=["jobs", "note"]),
        empty="no jobs",
        dropped=("note", "time", "cancelled", "ready"),
    )
    kinds = {stack.id: stack.kind for stack in stacks}
    for prefix, stack, parent in _tree(stacks):
        table.add(
            show.Cell(f"{prefix}{stack.kind}{_times_sign(stack)}", "bold"),
            *_cells(stack.counts),
            times.get(stack.id, "-"),
            show.Cell(_note(stack, parent, kinds), "dim"),
        )
    return table


def _times_sign(stack: WorkflowStack) -> str:
    total = sum(count.value for count in stack.counts.values())
    is_exact = all(count.exact for count in stack.counts.values())
    return f" × {show.number(total, exact=is_exact)}" if total > 1 or not is_exact else ""


def _note(stack: WorkflowStack, parent: str | None, kinds: dict[str, str]) -> str:
    notes = {"ended": "whatever happened", "dead": "only after a death"}
    parts = [notes[stack.when]] if stack.when in notes else []
    others = [kinds.get(each, each) for each in stack.after if each != parent]
    if others:
        parts.append(f"also after {', '.join(others[:3])}{', …' if len(others) > 3 else ''}")
    return "; ".join(parts)


def _tree(stacks: Sequence[WorkflowStack]) -> Iterator[tuple[str, WorkflowStack, str | None]]:
    """Yield the lines of a tree: what stands before the stack, the stack, and its parent there."""
    below: dict[str | None, list[WorkflowStack]] = {}
    listed: list[str] = []
    for stack in stacks:
        # Stacks that wait for each other in a circle stand where the first of them was listed.
        before = [each for each in listed if each in stack.after]
        below.setdefault(before[-1] if before else None, []).append(stack)
        listed.append(stack.id)
    # Without recursion: a chain may have as many stacks as a workflow may.
    waiting: list[tuple[str, str, WorkflowStack, str | None]]
    waiting = [("", "", stack, None) for stack in reversed(below.get(None, []))]
    while waiting:
        prefix, rest, stack, parent = waiting.pop()
        yield prefix, stack, parent
        children = below.get(stack.id, [])
        for place in range(len(children) - 1, -1, -1):
            is_last = place == len(children) - 1
            branch, further = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            waiting.append((rest + branch, rest + further, children[place], stack.id))


@workflows.command("jobs")
@click.argument("id")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option(
    "--stack",
    metavar="STACK",
    help="Only jobs of this stack. The JSON of a workflow has their ids.",
)
@page_options
@json_option(
    "one line per job, and a last one with `next`, the cursor of the following page or null"
)
@click.pass_obj
def list_jobs(
    target: Target,
    *,
    id: str,
    state: str | None,
    stack: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List the jobs of a workflow: dead ones first, then live ones, then the others."""
    with target.open_app() as app:
        page = app.workflow_jobs(id, state=state, stack=stack, limit=limit, cursor=cursor)
    print_page(page, as_json=as_json)


@workflows.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option("one line per workflow: `id`, and `jobs`, how many were cancelled")
@click.pass_obj
def cancel(target: Target, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Cancel all jobs of workflows that have not ended. Jobs that run are asked to end."""
    with target.open_app() as app:

        def act(id: str) -> None:
            _print_done(id, app.cancel_workflow(id), "cancelled", as_json=as_json)

        each(ids, act)


@workflows.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option("one line per workflow: `id`, and `jobs`, how many are retried")
@click.pass_obj
def retry(target: Target, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Retry the dead jobs of workflows, and those that were cancelled because of them."""
    with target.open_app() as app:

        def act(id: str) -> None:
            _print_done(id, app.retry_workflow(id), "retried", as_json=as_json)

        each(ids, act)


def _print_done(id: str, number: int, done: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(show.as_json({"id": id, "jobs": number}))
    else:
        click.echo(f"{show.escaped(id)} {show.plural(number, 'job')} {done}")

"""`rowlock workflows`, and what other commands say of jobs that wait."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from rowlock import App, TypedJob
from rowlock.cli.workflows import tree_table
from rowlock.job import Count, JobState
from rowlock.workflow import Workflow
from rowlock.workflow_info import WorkflowStack
from tests.cli.conftest import Run, documents

UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def flow(app: App) -> Workflow:
    """Three pages, of which one dies, an index that waits, and a job that a death has released."""

    @app.task(max_attempts=1)
    def fetch(page: int) -> int:
        if page == 1:
            raise ValueError("no such page")
        return page

    @app.task
    def index(pages: list[int]) -> int:
        return len(pages)

    @app.task
    def page_somebody() -> None:
        pass

    with app.workflow("crawl", key="monday") as flow:
        pages = flow.map(fetch.job(page=number) for number in range(3))
        flow.add(index.job(pages=pages.results), after=pages)
        flow.add(page_somebody.job(), after=pages, when="dead")
    app.drain()
    return flow


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


def test_workflows_are_listed(app: App, run: Run, flow: Workflow):
    """Newest first, with the states of their jobs, in pages, and by name and state."""
    with app.workflow("empty"):
        pass
    head, *lines = rows(run("workflows", "list").stdout)
    first = run("workflows", "list", "--limit", "1")
    dead, last = documents(run("workflows", "list", "--state", "dead", "--json"))

    assert head[:4] == ["ID", "NAME", "STATE", "WAITING"]
    assert [line[1:3] for line in lines] == [["empty", "succeeded"], ["crawl", "dead"]]
    assert lines[1][3:9] == ["1", "0", "0", "3", "1", "0"]
    assert lines[1][-1] == "monday"
    assert first.stderr.startswith("more: --cursor ")
    assert (dead["id"], dead["counts"]["dead"], last) == (
        flow.id,
        {"value": 1, "exact": True},
        {"next": None},
    )
    assert run("workflows", "list", "--name", "other").stdout == "no workflows\n"


def test_a_workflow_is_shown_as_a_tree(run: Run, flow: Workflow):
    """Jobs that are alike are one line. Dead ones follow, with what to do."""
    done = run("workflows", "show", flow.id)
    about, tree, dead = done.stdout.split("\n\n")

    assert ["state", "dead"] in rows(about)
    lines = sorted(rows(tree)[1:])
    assert lines[0][:3] == ["fetch", "×", "3"]
    assert lines[0][3:9] == ["0", "0", "0", "2", "1", "0"]
    assert lines[0][9] == "took"
    assert [line[:2] for line in lines[1:]] == [["└─", lines[1][1]], ["├─", lines[2][1]]]
    assert {lines[1][1], lines[2][1]} == {"index", "page_somebody"}
    assert tree.count("only after a death") == 1
    assert "is dead: ValueError: no such page" in dead
    assert f"rowlock workflows retry {flow.id}" in dead


def test_a_graph_is_printed_for_other_programs(run: Run, flow: Workflow):
    """As JSON, and in Mermaid's notation."""
    drawn = run("workflows", "show", flow.id, "--mermaid")
    found = json.loads(run("workflows", "show", flow.id, "--json").stdout)

    assert drawn.stdout.startswith("flowchart LR\n")
    assert "fetch × 3<br/>2 succeeded, 1 dead" in drawn.stdout
    assert "-- dead -->" in drawn.stdout
    assert {stack["kind"] for stack in found["stacks"]} == {"fetch", "index", "page_somebody"}
    assert found["workflow"]["state"] == "dead"
    assert run("workflows", "show", flow.id, "--mermaid", "--json").exit_code == 2


def test_a_line_that_waits_for_several_is_shown_once():
    """Below the last of them. A circle of stacks has an end, too."""
    stacks = [
        WorkflowStack(id="1", kind="a", counts={JobState.READY: Count(1)}),
        WorkflowStack(id="2", kind="b", after=["1", "4"], counts={JobState.READY: Count(1)}),
        WorkflowStack(id="3", kind="c", after=["1"], counts={JobState.READY: Count(1)}),
        WorkflowStack(id="4", kind="d", after=["2", "3"], counts={JobState.READY: Count(1)}),
    ]
    table = tree_table(stacks, {})

    assert [(row[0].text, row[-1].text) for row in table.rows] == [
        ("a", ""),
        ("├─ b", "also after d"),
        ("└─ c", ""),
        ("   └─ d", "also after b"),
    ]


def test_a_workflow_is_retried_and_cancelled(app: App, run: Run, flow: Workflow):
    """By one command each. One that is unknown is complained of, and the others are done."""
    retried = run("workflows", "retry", UNKNOWN, flow.id)
    (cancelled,) = documents(run("workflows", "cancel", flow.id, "--json"))
    found = app.get_workflow(flow.id)

    assert retried.stdout == f"{flow.id} 1 job retried\n"
    assert (retried.exit_code, f"there is no workflow {UNKNOWN}" in retried.stderr) == (3, True)
    assert cancelled == {"id": flow.id, "jobs": 2}
    assert found is not None and found.state == "cancelled"
    assert run("workflows", "show", UNKNOWN).exit_code == 3


def test_the_jobs_of_a_workflow_are_listed(run: Run, flow: Workflow):
    """Those in one state, or all."""
    dead, last = documents(run("workflows", "jobs", flow.id, "--state", "dead", "--json"))

    assert (dead["kind"], last) == ("fetch", {"next": None})
    assert len(rows(run("workflows", "jobs", flow.id).stdout)) == 6


def test_the_doctor_names_workflows_that_need_help(app: App, run: Run, flow: Workflow):
    """Dead ones, and those that wait for a dead job of another."""
    (dead,) = app.list(state="dead")
    node = app.prepare({"kind": "later"})
    with app.workflow("next") as waiting:
        waiting.add(cast("TypedJob[Any]", node), after=dead)
    found = json.loads(run("doctor", "--json").stdout)["findings"]
    (about,) = [each for each in found if each["check"] == "workflows"]

    assert about["level"] == "warn"
    assert about["text"] == (
        f"of 2 open workflows, dead: crawl {flow.id}; "
        f"waiting for a dead job outside of them: next {waiting.id}"
    )


def test_other_commands_know_jobs_that_wait(app: App, run: Run, flow: Workflow):
    """Lists, counts, and the reason with what to do."""
    _, line = rows(run("jobs", "list", "--state", "waiting").stdout)
    id = line[0]
    queues = run("queues", "list").stdout
    shown = run("jobs", "show", id).stdout
    why = run("jobs", "why", id).stdout

    assert line[1:3] == ["waiting", "index"]
    assert "for 1 job" in run("jobs", "list", "--state", "waiting").stdout
    assert "WAITING" in queues
    assert ["workflow", flow.id] in rows(shown)
    assert "which is dead: retry or delete it" in why
    assert "→ retry that job with: rowlock jobs retry " in why

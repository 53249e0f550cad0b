"""Handlers that end their process, fork, or return what was never run."""

from __future__ import annotations

import functools
import itertools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState
from tests.support.workers import ROOT, children_of, worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("what a handler does to its process")


# How a process ended has nothing to do with the store: each code is tried on one of them.
@pytest.mark.parametrize(
    ("any_url", "code"),
    [("sqlite", 0), ("postgres", 1), ("sqlite", 3), ("postgres", 4)],
    indirect=["any_url"],
)
def test_a_handler_that_ends_its_process_is_a_crash(app, code):
    """Whatever exit code it takes: it runs alone next time, and then it is poison."""
    poison = app.enqueue("end_process", {"code": code})
    others = app.enqueue_many([{"kind": "noop"} for _ in range(50)])
    with worker(app, "--drain") as process:
        assert process.wait(60) == 0
    found = app.get(poison.id)

    assert (found.state, found.crashes) == (JobState.DEAD, 2)
    assert f"exit code {code}" in found.last_error
    assert {app.get(job.id).state for job in others} == {JobState.SUCCEEDED}


@pytest.mark.parametrize(
    ("any_url", "how"),
    [("sqlite", "stop"), ("postgres", "cancel"), ("sqlite", "exit")],
    indirect=["any_url"],
)
def test_a_handler_that_ends_the_loop_is_a_crash(app, how):
    """Also if it has returned by then, and its outcome was not written: it is not run for ever."""
    poison = app.enqueue("end_loop", {"how": how})
    other = app.enqueue("noop")
    with worker(app, "--drain") as process:
        assert process.wait(60) == 0
    found = app.get(poison.id)

    assert (found.state, found.crashes) == (JobState.DEAD, 2)
    assert "exit code 1" in found.last_error
    assert app.get(other.id).state == JobState.SUCCEEDED


def test_a_handler_that_leaves_has_failed(app):
    """`sys.exit()` in a job is an error of this job, and of nobody else."""
    kinds = ("leave_thread", "leave_coroutine", "leave_slot")
    jobs = {
        (kind, error): app.enqueue(kind, {"error": error})
        for kind, error in itertools.product(kinds, ("SystemExit", "GeneratorExit"))
    }
    with worker(app, "--drain") as process:
        code = process.wait(60)
    found = {each: app.get(job.id) for each, job in jobs.items()}

    assert code == 0
    assert {
        each: (job.state, job.crashes, job.attempt, job.last_error) for each, job in found.items()
    } == {each: (JobState.DEAD, 0, 1, f"{each[1]}: bye") for each in jobs}


def test_a_forked_copy_that_comes_back_is_ended(app):
    """The handler's own process goes on; its copy is no second worker."""
    with worker(app) as process:
        for kind in ("fork_thread", "fork_coroutine", "fork_slot"):
            found = app.wait(app.enqueue(kind).id, timeout=60)
            copy = found.result

            assert found.state == JobState.SUCCEEDED, kind
            wait_until(lambda copy=copy: is_dead(copy))
            assert app.wait(app.enqueue("noop").id, timeout=60).state == JobState.SUCCEEDED, kind
            assert len(children_of(process)) == 1, kind


def is_dead(pid: int) -> bool:
    """Whether it is gone, or waits only for its parent to look."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_a_generator_is_no_task(app):
    """A call of it runs nothing, and would look like a success."""
    for function in (_generator, _agenerator):
        with pytest.raises(rowlock.OptionInvalid, match="generator"):
            app.task(name="generator")(function)


def _generator():
    yield


async def _agenerator():
    yield


def test_what_was_never_run_has_failed(app):
    """A plain function that returns a coroutine or a generator has done nothing."""

    async def work() -> None: ...

    for name, function in (("wrapped", work), ("lazy", _generator)):
        app.task(name=name, max_attempts=1)(decorated(function))
    jobs = [app.enqueue("wrapped"), app.enqueue("lazy")]
    app.drain()

    assert [app.get(job.id).last_error.partition(",")[0] for job in jobs] == [
        "TypeError: it returned a coroutine",
        "TypeError: it returned a generator",
    ]


def decorated(function):
    """As decorators do that know nothing of coroutines."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def test_statements_are_read_once(sqlite_url):
    """No file of ours is opened for a statement after the first one: there may be none left."""
    script = (
        "import json, os, sys\n"
        "import rowlock\n"
        "app = rowlock.App(sys.argv[1])\n"
        "app.get('00000000-0000-7000-8000-000000000000')\n"
        "opened = []\n"
        "sys.addaudithook(lambda name, what: name == 'open' and opened.append(str(what[0])))\n"
        "job = app.enqueue('work')\n"
        "app.cancel(job.id), app.stats(), app.store.recover()\n"
        "print(json.dumps([name for name in opened if name.endswith('.sql')]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, sqlite_url],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env=os.environ,
    )

    assert json.loads(done.stdout) == []


def test_a_child_without_memory(app):
    """A handler that asks for all there is has failed; what came before and after it runs."""
    greedy = app.enqueue("take_memory")
    with worker(app, "-c", "2") as process:
        (child,) = wait_until(lambda: children_of(process))
        more = resource.prlimit(child, resource.RLIMIT_AS)[1]
        wait_until(lambda: app.get(greedy.id).state is JobState.RUNNING, seconds=60)
        resource.prlimit(child, resource.RLIMIT_AS, (1024**3, more))
        found = app.wait(greedy.id, timeout=60)
        after = app.wait(app.enqueue("noop").id, timeout=60)

        assert None is process.poll()
    assert (found.state, after.state) == (JobState.DEAD, JobState.SUCCEEDED)
    assert found.crashes or "MemoryError" in found.last_error

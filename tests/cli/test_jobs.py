"""`rowlock jobs`: tables and JSON of jobs, and what can be done to them."""

from __future__ import annotations

import json
import re

import pytest

from rowlock import App, Why
from rowlock.ids import new_id
from tests.cli.conftest import HOSTILE, documents, kill, on_terminal


def test_list_is_a_table(app, run):
    """A row a job: its state, the time that matters there, and its last error."""
    ready = app.enqueue("send", queue="mail", key="k")
    later = app.enqueue("report", delay=600)
    dead = app.enqueue("bad", max_attempts=1)
    kill(app, dead.id, "no way")
    running = app.enqueue("work", queue="busy")
    (lease,) = app.store.claim(worker="w", queues=["busy"])
    app.store.progress(lease, fraction=0.25, text="a quarter")
    result = run("jobs", "list")
    head, *rows = result.stdout.splitlines()
    found = {row.split()[0]: row for row in rows}

    assert head.split() == ["ID", "STATE", "KIND", "QUEUE", "ATTEMPT", "WHEN", "NOTE"]
    assert set(found) == {ready.id, later.id, dead.id, running.id}
    assert "key k" in found[ready.id]
    assert "in 10m" in found[later.id]
    assert "Error: no way" in found[dead.id]
    assert "25% a quarter" in found[running.id]
    assert "\x1b" not in result.output


def test_list_pages_as_json_lines(app, run):
    """JSON is one line a job, and a last one with the cursor of what follows."""
    ids = [app.enqueue("send", {"n": n}).id for n in range(3)]
    *first, end = documents(run("jobs", "list", "--limit", "2", "--json"))
    *rest, last = documents(run("jobs", "list", "--json", "--cursor", end["next"]))

    assert [job["id"] for job in [*first, *rest]] == list(reversed(ids))
    assert last == {"next": None}
    assert first[0]["payload"] == {"n": 2}
    assert first[0]["created_at"].endswith("Z")


def test_list_tells_of_more_beside_the_table(app, run):
    """Where a table goes on is told on stderr, so that a pipe gets rows only."""
    for _ in range(2):
        app.enqueue("send")
    result = run("jobs", "list", "--limit", "1")

    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("more: --cursor ")
    assert run("jobs", "list", "--queue", "none").stdout == "no jobs\n"


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["--state", "ready"], ["b"]),
        (["--kind", "a"], ["a"]),
        (["--queue", "mail"], ["a"]),
        (["--tenant", "acme"], ["b"]),
        (["--key", "k"], ["b"]),
        (["--tag", "t"], ["a"]),
        (["--since", "1h"], ["b", "a"]),
        (["--until", "1h"], []),
        (["--since", "2020-01-01T00:00Z", "--until", "2020-01-02T00:00+02:00"], []),
    ],
)
def test_filters(app, run, words, kinds):
    """Each filter of the library is an option."""
    app.enqueue("a", queue="mail", tags=["t"], delay=60)
    app.enqueue("b", tenant="acme", key="k")
    *found, _ = documents(run("jobs", "list", "--json", *words))

    assert kinds == [job["kind"] for job in found]


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (["list", "--state", "lost"], 2),
        (["list", "--since", "yesterday"], 2),
        (["list", "--since", "99999999999w"], 2),
        (["list", "--limit", "0"], 2),
        (["list", "--cursor", "x"], 4),
        (["list", "--queue", ""], 4),
        (["show"], 2),
        (["show", "7"], 4),
        (["show", "01a1e10f-531c-7000-8ad1-74fa1432526a"], 3),
        (["cancel", "01a1e10f-531c-7000-8ad1-74fa1432526a"], 3),
        (["retry", "01a1e10f-531c-7000-8ad1-74fa1432526a"], 3),
        (["delete", "01a1e10f-531c-7000-8ad1-74fa1432526a"], 3),
        (["wait", "01a1e10f-531c-7000-8ad1-74fa1432526a"], 3),
        (["retry", "a", "b", "--payload", "{}"], 2),
        (["retry", "a", "--payload", "["], 4),
    ],
)
def test_mistakes_have_their_exit_codes(sqlite_url, words, exit_code):
    """What is not there is 3, what is not valid 4, what is not understood 2."""
    from click.testing import CliRunner

    from rowlock.cli import main

    App(sqlite_url).migrate()
    result = CliRunner().invoke(main, ["--database-url", sqlite_url, "jobs", *words])

    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr


def test_show(app, run):
    """One job with its payload, errors and traceback; as JSON with every field."""
    job = app.enqueue("send", {"to": "x"}, tags=["t"], max_attempts=1)
    (lease,) = app.store.claim(worker="w", queues=["default"])
    app.store.log(lease, ["hello", "there"])
    with pytest.raises(ConnectionError) as caught:
        refuse()
    app.store.fail(lease, caught.value)
    text = run("jobs", "show", job.id, "--log").stdout
    (document,) = documents(run("jobs", "show", job.id, "--log", "--json"))

    assert text.splitlines()[0].split() == ["id", job.id]
    assert 'payload   {"to": "x"}' in text
    assert "\nattempt   1 of 1\n" in text
    assert "ConnectionError: refused" in text
    assert "\n          Traceback (most recent call last)" in text
    assert "hello" in text
    assert (document["state"], document["last_error"]) == ("dead", "ConnectionError: refused")
    assert [line["text"] for line in document["log"]] == ["hello", "there"]


def test_show_hides_only_what_is_not_set(app, run):
    """A result of zero is a result; a priority of zero is none."""
    job = app.enqueue("send")
    app.store.succeed(app.store.claim(worker="w", queues=["default"]), [0])
    names = {
        line.split()[0]: line.split()[-1]
        for line in run("jobs", "show", job.id).stdout.splitlines()
    }

    assert names["result"] == "0"
    assert not {"priority", "tenant", "tags", "cancel_requested"} & names.keys()


def test_show_tells_times_and_holders(app, run):
    """Until when a running job is held and by whom; when a waiting one is due."""
    later = app.enqueue("send", delay=3 * 86_400, key="k")
    running = app.enqueue("send", queue="busy")
    (lease,) = app.store.claim(worker="w7", queues=["busy"], lease=3600)
    app.store.progress(lease, fraction=0.25, text="a quarter")
    waiting, held = (run("jobs", "show", job.id).stdout for job in (later, running))

    assert re.search(r"^state +scheduled in 3d$", waiting, re.MULTILINE)
    assert re.search(r"^due .*Z \(in 3d\)$", waiting, re.MULTILINE)
    assert re.search(r"^worker +w7, until .*Z \(in 60m\)$", held, re.MULTILINE)
    assert re.search(r"^progress +25% a quarter$", held, re.MULTILINE)


def refuse() -> None:
    raise ConnectionError("refused")


def test_hostile_texts_are_escaped(app, run):
    """No stored text reaches a terminal as it is, wherever it stands."""
    job = app.enqueue(
        HOSTILE, {"x": HOSTILE}, queue=HOSTILE, key=HOSTILE, tenant=HOSTILE, tags=[HOSTILE]
    )
    kill(app, job.id, HOSTILE)
    app.pause(HOSTILE)
    app.store.announce(worker=HOSTILE, queues=[HOSTILE], kinds=[HOSTILE], host=HOSTILE, pid=1)
    outputs = [
        run(*words).output
        for reading in (
            ["jobs", "list"],
            ["jobs", "show", job.id],
            ["jobs", "show", HOSTILE],
            ["jobs", "cancel", HOSTILE],
            ["dead", "list"],
            ["dead", "export"],
            ["queues", "list"],
            ["queues", "resume", HOSTILE],
            ["stats"],
            ["workers"],
            ["top", "--once"],
            ["doctor"],
        )
        for words in (reading, [*reading, "--json"])
    ]
    joined = "".join(outputs).replace("\n", "")

    assert "".join(character for character in joined if not character.isprintable()) == ""
    assert "q\\x1b[2J\\x1b[31m\\x9b5m\\u202e\\rx" in joined


def test_several_ids(app, run):
    """One bad id keeps the others from nothing; the first failure decides the exit code."""
    jobs = [app.enqueue("send").id for _ in range(2)]
    result = run("jobs", "cancel", jobs[0], new_id(), "x", jobs[1])

    assert result.exit_code == 3
    assert [f"{id} cancelled (cancelled)" for id in jobs] == result.stdout.splitlines()
    assert len(result.stderr.splitlines()) == 2


def test_cancel_tells_what_it_did(app, run):
    """A running job is asked, an ended one is left."""
    job = app.enqueue("send")
    (lease,) = app.store.claim(worker="w", queues=["default"])
    asked = documents(run("jobs", "cancel", job.id, "--json"))
    app.store.succeed([lease])
    late = run("jobs", "cancel", job.id)

    assert asked == [{"id": job.id, "outcome": "pending_on_worker", "state": "running"}]
    assert late.stdout == f"{job.id} already_terminal (succeeded)\n"


def test_retry_with_another_payload(app, run):
    """A dead job goes back, by choice with what it should have been given."""
    job = app.enqueue("send", {"to": "x"}, max_attempts=1)
    kill(app, job.id)
    result = run("jobs", "retry", job.id, "--payload", '{"to": "y"}')
    again = run("jobs", "retry", job.id, "--json")

    assert result.stdout == f"{job.id} ready\n"
    assert app.get(job.id).payload == {"to": "y"}
    assert (again.exit_code, again.stdout) == (4, "")


def test_delete(app, run):
    """A job that waits is removed, one that runs is not."""
    waits = app.enqueue("send", delay=60)
    runs = app.enqueue("send")
    app.store.claim(worker="w", queues=["default"])
    result = run("jobs", "delete", waits.id, runs.id)

    assert (result.exit_code, result.stdout) == (4, f"{waits.id} deleted\n")
    assert "is running" in result.stderr


def test_delete_a_job_that_others_wait_for(app, run):
    """Only with `--cascade`. What needs its success is cancelled."""
    task = app.task(name="send")(lambda: None)
    with app.workflow("pair") as flow:
        first = flow.add(task.job())
        second = flow.add(task.job(), after=first)
    refused = run("jobs", "delete", first.id)
    deleted = run("jobs", "delete", "--cascade", first.id)

    assert (refused.exit_code, deleted.stdout) == (4, f"{first.id} deleted\n")
    assert "use cascade" in refused.stderr
    assert app.get(second.id).state == "cancelled"


def test_wait(app, run):
    """It ends with the job, and says by its exit code whether that succeeded."""
    good, bad, waiting = (app.enqueue(kind, queue=kind, max_attempts=1) for kind in "abc")
    app.store.succeed(app.store.claim(worker="w", queues=["a"]))
    kill(app, bad.id)
    late = run("jobs", "wait", waiting.id, "--timeout", "50ms")

    assert run("jobs", "wait", good.id).exit_code == 0
    assert (*(run("jobs", "wait", bad.id).exit_code, run("jobs", "wait", bad.id).stdout),) == (
        1,
        f"{bad.id} dead\n",
    )
    assert (late.exit_code, late.stderr.count("\n")) == (1, 1)
    assert "is not finished after" in late.stderr


def test_terminals_see_colours(sqlite_url, tmp_path):
    """States are coloured on a terminal; not with NO_COLOR, nor without rich."""
    on_terminal("enqueue", "send", url=sqlite_url)
    code, drawn = on_terminal("jobs", "list", url=sqlite_url)
    _, silent = on_terminal("jobs", "list", url=sqlite_url, NO_COLOR="1")
    _, plain = on_terminal("jobs", "list", url=sqlite_url, without=tmp_path)
    _, document = on_terminal("jobs", "show", "x", "--json", url=sqlite_url)

    assert code == 0
    assert "\x1b[36mready" in drawn
    assert "ready" in silent
    assert "\x1b" not in silent + plain + document


def test_json_on_a_terminal_is_indented(sqlite_url):
    """A person reads one field a line."""
    _, text = on_terminal("enqueue", "send", "--json", url=sqlite_url)

    assert '\n  "kind": "send"' in text.replace("\r", "")
    assert json.loads(text)["kind"] == "send"


def test_why(app, run):
    """Per job its state, what blocks it, and what helps."""
    paused = app.enqueue("work", queue="m ail")
    app.pause("m ail")
    later = app.enqueue("work", delay=3600)
    done = run("jobs", "why", paused.id, later.id)
    *first, second, reason, advice = done.stdout.splitlines()

    assert first == [
        f"{paused.id} ready",
        "  its queue 'm ail' is paused",
        "  → resume it with: rowlock queues resume 'm ail'",
    ]
    assert second == f"{later.id} scheduled"
    assert reason.startswith("  it is not due until ")
    assert advice == f"  → make it due with: rowlock jobs run-now {later.id}"


def test_why_as_json(app, run):
    """A line a job, with every field; an unknown one decides the exit code."""
    job = app.enqueue("work")
    done = run("jobs", "why", new_id(), job.id, "--json")
    (document,) = documents(done)

    assert (done.exit_code, document["id"], document["code"]) == (3, job.id, "no_worker")
    assert set(Why.__struct_fields__) == set(document)


def test_why_is_escaped(app, run):
    """Names can't write to the terminal of whoever asks."""
    job = app.enqueue(HOSTILE, queue=HOSTILE)
    app.store.announce(worker="w", queues=[], kinds=["x"], host="h", pid=1)
    unknown = run("jobs", "why", job.id).stdout
    app.pause(HOSTILE)

    assert not {"\x1b", "\x9b", "\r"} & set(unknown + run("jobs", "why", job.id).stdout)


def test_jobs_are_moved(app, run):
    """Made due, put off, moved to another queue, and run again once they have ended."""
    job = app.enqueue("send", delay=600)
    due = run("jobs", "run-now", job.id)
    later = run("jobs", "reschedule", job.id, "--delay", "1h")
    moved = run("jobs", "reroute", job.id, "--to", "mail", "--json")
    early = run("jobs", "run-again", job.id)
    app.cancel(job.id)
    again = run("jobs", "run-again", job.id, "--payload", '{"to": "y"}')
    (ready,) = app.list(state="ready", full=True)

    assert due.stdout == f"{job.id} ready\n"
    assert later.stdout == f"{job.id} scheduled\n"
    assert documents(moved)[0]["queue"] == "mail"
    assert (early.exit_code, early.stdout) == (4, "")
    assert again.stdout == f"{ready.id} ready\n"
    assert (ready.payload, ready.meta) == ({"to": "y"}, {"run_again_of": job.id})


@pytest.mark.parametrize(
    "words",
    [
        ("reschedule", "ID"),
        ("reschedule", "ID", "--delay", "1h", "--run-at", "2035-01-31T12:00Z"),
        ("reroute", "ID"),
        ("bulk", "explode"),
        ("bulk", "cancel"),
    ],
)
def test_words_that_do_not_fit(run, words):
    """What is missing is said, and nothing is asked of a pipe."""
    assert run("jobs", *words).exit_code == 2


def test_many_jobs_at_once(app, run):
    """Counted first, then done; what could not be is named."""
    app.enqueue_many([{"kind": "send", "queue": "mial"}] * 3)
    words = ("jobs", "bulk", "reroute", "--state", "ready", "--queue", "mial", "--to", "mail")
    counted = run(*words, "--dry-run")
    done = run(*words, "--yes", "--json")
    app.enqueue("send", queue="mial")
    single = run(*words, "--dry-run")

    assert counted.stdout == "3 jobs match\n"
    assert single.stdout == "1 job matches\n"
    assert documents(done) == [{"done": 3, "skipped": []}]
    assert [job.queue for job in app.list(queue="mail")] == ["mail"] * 3

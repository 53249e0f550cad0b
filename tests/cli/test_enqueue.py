"""`rowlock enqueue`: one job, or many from lines, all or none of a batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rowlock.cli import enqueue
from tests.cli.conftest import documents, on_terminal


def test_one_job(app, run):
    """The options of a job are those of the library."""
    words = ("--queue", "mail", "--priority", "5", "--tenant", "acme", "--max-attempts", "3")
    more = ("--key", "k", "--key-hold", "1h", "--tag", "a", "--tag", "b", "--delay", "5m")
    result = run("enqueue", "send", '{"to": "a@b.c"}', *words, *more)
    job = app.get(result.stdout.split()[0])

    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(" scheduled\n")
    assert (*(job.kind, job.payload, job.queue, job.priority, job.tenant),) == (
        "send",
        {"to": "a@b.c"},
        "mail",
        5,
        "acme",
    )
    assert (job.key, job.tags, job.max_attempts) == ("k", ["a", "b"], 3)
    assert (job.run_at - job.created_at).total_seconds() == 300


def test_an_existing_job_is_told(run):
    """A key in flight, and an id that was given before, are answered by the same job."""
    first = run("enqueue", "send", "--key", "k", "--json")
    again = run("enqueue", "send", "--key", "k")
    (job,) = documents(first)
    by_id = run("enqueue", "send", "--id", job["id"], "--json")

    assert job["created"]
    assert again.stdout == f"{job['id']} ready (existed already)\n"
    assert (documents(by_id)[0]["id"], documents(by_id)[0]["created"]) == (job["id"], False)


def test_a_debounce(app, run):
    """The last payload counts, and each enqueue begins the time anew."""
    words = ("--key", "k", "--quiet", "5s", "--max-wait", "1m")
    first = run("enqueue", "send", '{"n": 1}', *words, "--key-hold", "until_started")
    again = run("enqueue", "send", '{"n": 2}', *words)
    kept = run("enqueue", "send", '{"n": 3}', "--key", "k", "--if-held", "keep")
    (job,) = app.list(full=True)

    assert [result.exit_code for result in (first, again, kept)] == [0, 0, 0]
    assert again.stdout == kept.stdout == f"{job.id} scheduled (existed already)\n"
    assert (job.payload, (job.run_at - job.created_at).total_seconds() >= 5) == ({"n": 2}, True)


@pytest.mark.parametrize(
    ("words", "exit_code", "problem"),
    [
        (["enqueue"], 2, "KIND"),
        (["enqueue", "send", "{"], 4, "not readable as JSON"),
        (["enqueue", "send", "[1]"], 4, "not an array"),
        (["enqueue", "send", "--priority", "101"], 4, "priority"),
        (["enqueue", "send", "--delay", "soon"], 2, "'soon' is not a duration"),
        (["enqueue", "send", "--run-at", "2030-01-01"], 2, "no time zone"),
        (["enqueue", "send", "--run-at", "x"], 2, "not an ISO 8601 time"),
        (["enqueue", "send", "--key", "k", "--key-hold", "x"], 2, "until_started or kept"),
        (["enqueue", "send", "--quiet", "5s"], 4, "quiet: needs a key"),
        (["enqueue", "send", "--if-held", "drop"], 2, "'keep', 'replace'"),
        (["enqueue", "send", "--many", "-", "--key", "k"], 2, "from its lines"),
        (["enqueue", "--many", "not-there"], 2, "not-there"),
    ],
)
def test_mistakes_have_their_exit_codes(sqlite_url, words, exit_code, problem):
    """A mistake is told on stderr, and nothing is printed or enqueued."""
    from click.testing import CliRunner

    from rowlock.cli import main

    result = CliRunner().invoke(main, ["--database-url", sqlite_url, *words], input="{}\n")

    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert problem in result.stderr


def test_many_with_their_own_kinds(app, run):
    """Each line names its kind and options; options of the command hold where it has none."""
    lines = [
        {"kind": "a", "payload": {"n": 1}, "queue": "own", "tags": ["t"]},
        {"kind": "b", "run_at": "2040-01-01T00:00:00Z", "key": "k"},
        {"kind": "b", "key": "k"},
    ]
    text = "\n\n".join(map(json.dumps, lines))
    result = run("enqueue", "--many", "-", "--queue", "common", "--json", input=text)
    found = {job.kind: job for job in app.list(full=True)}

    assert json.loads(result.stdout) == {"enqueued": 2, "existing": 1}
    assert (*(found["a"].queue, found["a"].payload, found["a"].tags),) == ("own", {"n": 1}, ["t"])
    assert (found["b"].queue, found["b"].run_at) == ("common", datetime(2040, 1, 1, tzinfo=UTC))


def test_many_payloads_of_one_kind(app, run, tmp_path, monkeypatch):
    """With a kind given, a line is a payload; batches are told of as lines in a pipe."""
    monkeypatch.setattr(enqueue, "BATCH_LINES", 2)
    file = tmp_path / "payloads.jsonl"
    file.write_text("".join(f'{{"kind": {n}}}\n' for n in range(5)))
    result = run("enqueue", "send", "--many", str(file))

    assert result.stdout == "enqueued 5 jobs, 0 existed already\n"
    assert result.stderr == "enqueuing: 2 jobs\n"
    assert [{"kind": n} for n in (4, 3, 2, 1, 0)] == [job.payload for job in app.list(full=True)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not readable as JSON"),
        ("7", "not a number"),
        ("{}", "kind: is missing"),
        ('{"kind": "a", "payload": []}', "must be a JSON object"),
        ('{"kind": "a", "prioritty": 1}', "did you mean 'priority'"),
        ('{"kind": "a", "conn": 1}', "no such option"),
        ('{"kind": "a", "run_at": "2030-01-01"}', "no time zone"),
        ('{"kind": "a", "run_at": 5}', "aware datetime"),
        ('{"kind": 5}', "must be a string"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_a_bad_line_is_named(app, run, monkeypatch, line, problem):
    """Of its batch nothing is written; the batches before it stay, and are told of."""
    monkeypatch.setattr(enqueue, "BATCH_LINES", 2)
    good = '{"kind": "a"}\n'
    text = f"{good}{good}{good}{line}\n{good}".encode("utf-8", "surrogateescape")
    result = run("enqueue", "--many", "-", input=text)
    *_, error = result.stderr.splitlines()

    assert (result.exit_code, result.stdout) == (4, "")
    assert error.startswith("error: line 4: ")
    assert problem in error
    assert error.endswith("(lines 1 to 2 are enqueued)")
    assert len(app.list()) == 2


def test_lines_and_batches_are_bounded_in_bytes(app, run, monkeypatch):
    """A line without an end does not fill the memory, and large payloads make small batches."""
    monkeypatch.setattr(enqueue, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(enqueue, "BATCH_BYTES_MAX", 50)
    long = json.dumps({"x": "y" * 200})
    result = run("enqueue", "a", "--many", "-", input='{"x": "this is not so short"}\n' * 2 + long)

    assert result.exit_code == 4
    assert "line 3: longer than 100 bytes (lines 1 to 2 are enqueued)" in result.stderr
    assert len(app.list()) == 2


def test_the_app_checks_payloads(tmp_path, monkeypatch, run, app):
    """With --app the task's signature is the payload's schema."""
    (tmp_path / "rowlock_shop.py").write_text(
        "import rowlock\napp = rowlock.App('sqlite:///not-used.db')\n"
        "@app.task(queue='mail')\ndef send(to: str) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    bad = run("--app", "rowlock_shop:app", "enqueue", "send", '{"too": 1}')
    good = run("--app", "rowlock_shop:app", "enqueue", "send", '{"to": "x"}')

    assert bad.exit_code == 4
    assert bad.stderr.count("\n") == 1
    assert app.get(good.stdout.split()[0]).queue == "mail"


def test_progress_on_a_terminal(sqlite_url, tmp_path):
    """A terminal sees a bar, which is gone in the end; without rich, a line written over."""
    file = tmp_path / "lines.jsonl"
    file.write_text('{"kind": "a"}\n' * 3)
    code, drawn = on_terminal("enqueue", "--many", str(file), url=sqlite_url)
    _, plain = on_terminal("enqueue", "--many", str(file), url=sqlite_url, without=tmp_path)

    assert code == 0
    assert "\x1b[" in drawn
    assert "enqueued 3 jobs" in drawn
    assert "\x1b" not in plain
    assert "\renqueuing: 3 jobs" in plain

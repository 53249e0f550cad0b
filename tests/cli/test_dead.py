"""`rowlock dead`: the dead-letter box is listed, retried, emptied and copied."""

from __future__ import annotations

import json
import os
import stat

import pytest

from rowlock import config
from tests.cli.conftest import documents, kill, on_terminal


@pytest.fixture
def dead(app):
    """Three dead jobs: two of the queue mail, one of which has a key, one of another."""
    ids = []
    for queue, key in (("mail", None), ("mail", "k"), ("other", None)):
        job = app.enqueue("send", {"n": len(ids)}, queue=queue, key=key, max_attempts=1)
        kill(app, job.id)
        ids.append(job.id)
    return ids


def test_list(run, dead):
    """The newest failure comes first, filters work, and pages go on."""
    *first, end = documents(run("dead", "list", "--json", "--limit", "1"))
    *rest, last = documents(run("dead", "list", "--json", "--cursor", end["next"]))

    assert [job["id"] for job in [*first, *rest]] == list(reversed(dead))
    assert last == {"next": None}
    assert dead[2] in run("dead", "list", "--queue", "other").stdout
    assert run("dead", "list", "--kind", "none").stdout == "no jobs\n"


def test_retry_by_filter(app, run, dead):
    """Those that fit go back; one whose key is in use is skipped, and named."""
    app.enqueue("send", queue="mail", key="k")
    result = run("dead", "retry", "--queue", "mail")
    rest = run("dead", "retry", "--yes", "--json")

    assert result.stdout == "retried 1 job, skipped 1\n"
    assert result.stderr == f"skipped {dead[1]}: another job with its key is in flight\n"
    assert json.loads(rest.stdout) == {"retried": 1, "skipped": [dead[1]]}
    assert [app.get(id).state for id in dead] == ["ready", "dead", "ready"]


def test_many_are_retried_step_by_step(app, run, dead, monkeypatch):
    """Each step is a transaction of its own, and shown as progress."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 1)
    result = run("dead", "retry", "--yes", "--per-second", "1000")

    assert result.stdout == "retried 3 jobs, skipped 0\n"
    assert result.stderr == "retrying: 1 job\n"
    assert app.list(state="dead").jobs == []


def test_retry_of_all_needs_to_be_meant(app, run, dead, any_url):
    """Without a filter it asks on a terminal, and is refused in a pipe. A dry run only counts."""
    refused = run("dead", "retry")
    counted = run("dead", "retry", "--dry-run")
    as_json = run("dead", "retry", "--queue", "mail", "--dry-run", "--json")
    code, asked = on_terminal("dead", "retry", url=any_url, typed="n\n")

    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    assert (counted.exit_code, counted.stdout) == (0, "3 jobs match\n")
    assert json.loads(as_json.stdout) == {"matching": 2, "exact": True}
    assert (code, "3 jobs match. Retry all dead jobs? [y/N]: " in asked) == (1, True)
    assert [app.get(id).state for id in dead] == ["dead"] * 3


def test_purge_needs_to_be_meant(app, run, dead):
    """Without a filter or --all, and in a pipe without --yes, nothing is removed."""
    refused = [
        run("dead", "purge", "--yes"),
        run("dead", "purge", "--all"),
        run("dead", "purge", "--queue", "mail"),
        run("dead", "purge", "--queue", "mail", "--all", "--yes"),
    ]

    assert [result.exit_code for result in refused] == [2] * 4
    assert len(app.list(state="dead")) == 3


def test_purge(app, run, dead, monkeypatch):
    """What fits is removed for good, in steps, with what belongs to it."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 1)
    some = run("dead", "purge", "--queue", "mail", "--yes")
    rest = run("dead", "purge", "--all", "--yes", "--json")

    assert some.stdout == "removed 2 jobs\n"
    assert json.loads(rest.stdout) == {"removed": 1}
    assert [app.get(id) for id in dead] == [None] * 3


@pytest.mark.parametrize(("typed", "exit_code", "left"), [("y\n", 0, 1), ("n\n", 1, 3)])
@pytest.mark.usefixtures("dead")
def test_purge_asks_on_a_terminal(app, typed, exit_code, left):
    """A person is told how many, and asked."""
    code, text = on_terminal("dead", "purge", "--queue", "mail", url=app.url, typed=typed)

    assert exit_code == code
    assert "Remove 2 dead jobs permanently? [y/N]" in text
    assert len(app.list(state="dead")) == left


def test_export(run, dead, tmp_path, monkeypatch):
    """All dead jobs are written as JSON lines, page by page, to stdout or a file."""
    monkeypatch.setattr("rowlock.cli.dead.PAGE_JOBS", 2)
    file = tmp_path / "dead.jsonl"
    printed = run("dead", "export")
    written = run("dead", "export", "--queue", "mail", "--output", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]

    assert [job["id"] for job in documents(printed)] == list(reversed(dead))
    assert written.stdout == ""
    assert written.stderr.endswith("exported 2 jobs\n")
    assert [(job["id"], job["payload"]) for job in lines] == [
        (dead[1], {"n": 1}),
        (dead[0], {"n": 0}),
    ]


@pytest.fixture
def place(tmp_path):
    """A directory for exports, without the database."""
    made = tmp_path / "exports"
    made.mkdir()
    return made


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_owner_can_read_an_export(run, dead, place, umask):
    """Payloads may be private, whatever the umask. A file in the way is replaced, not kept open."""
    new, old = place / "new.jsonl", place / "old.jsonl"
    old.write_text("earlier")
    old.chmod(0o666)
    before = os.umask(umask)
    try:
        run("dead", "export", "--output", str(new))
        run("dead", "export", "--output", str(old), "--force")
    finally:
        os.umask(before)

    for file in (new, old):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert len(file.read_text().splitlines()) == len(dead)
    assert sorted(place.iterdir()) == [new, old]


def test_an_export_overwrites_nothing_by_itself(run, dead, place):
    """Without --force an existing file stays as it is."""
    file = place / "dead.jsonl"
    file.write_text("earlier")
    done = run("dead", "export", "--output", str(file))

    assert (done.exit_code, file.read_text()) == (1, "earlier")
    assert "exists; choose another name, or pass --force to replace it" in done.stderr


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("is_dangling", [True, False])
def test_an_export_follows_no_link(run, dead, place, force, is_dangling):
    """Somebody else may have planted it in a shared directory."""
    victim, planted = place / "victim", place / "dead.jsonl"
    planted.symlink_to(victim)
    if not is_dangling:
        victim.write_text("precious")
    done = run("dead", "export", "--output", str(planted), *force)

    assert done.exit_code == 1
    assert planted.is_symlink()
    assert is_dangling is not victim.exists()
    assert is_dangling or victim.read_text() == "precious"


def test_a_failed_export_leaves_nothing_behind(run, dead, place, monkeypatch):
    """Half a file would look like a whole one; what was there before is kept."""
    old = place / "old.jsonl"
    old.write_text("earlier")
    monkeypatch.setattr("rowlock.cli.show.job_document", lambda _: 1 / 0)
    for words in (("new.jsonl",), ("old.jsonl", "--force")):
        done = run("dead", "export", "--output", str(place / words[0]), *words[1:])
        assert isinstance(done.exception, ZeroDivisionError)

    assert list(place.iterdir()) == [old]
    assert old.read_text() == "earlier"


def test_export_to_nowhere(run):
    """A file that can't be written is one line, not a traceback."""
    done = run("dead", "export", "--output", "/not/there.jsonl")

    assert (done.exit_code, "Could not open file '/not/there.jsonl'" in done.stderr) == (1, True)


def test_groups(run, dead):
    """What they died of, with a fingerprint that the other commands take."""
    (group,) = documents(run("dead", "list", "--groups", "--json"))
    table = run("dead", "list", "--groups").stdout

    assert (group["count"]["value"], group["kind"]) == (3, "send")
    assert dead[2] == group["sample_id"]
    assert group["fingerprint"] in table and "FINGERPRINT" in table
    (few,) = documents(run("dead", "list", "--groups", "--queue", "mail", "--json"))
    assert few["count"]["value"] == 2
    assert run("dead", "list", "--groups", "--key", "k").exit_code == 2
    assert run("dead", "list", "--groups", "--cursor", "c").exit_code == 2
    assert "retried 3 jobs" in run("dead", "retry", "--fingerprint", group["fingerprint"]).stdout
    assert "no dead jobs" in run("dead", "list", "--groups").stdout

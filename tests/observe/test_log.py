"""The lines that our own processes log: readable, one for a record, and without secrets."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from rowlock import config
from rowlock.job import Lease
from rowlock.lifecycle import Succeeded
from rowlock.observe import log
from rowlock.worker.report import DETAILS, RunSettlement, report, running

ID = "01234567-89ab-7def-8123-456789abcdef"
HOSTILE = "a\x1b[2J\r\nERROR fake: line\x9b5m\u202e\x7f\u2028b"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # `configure` closes what it replaces; pytest's own handlers are not its to close.
    root.handlers[:] = []
    yield root
    root.handlers[:], root.level = handlers, level


def fail(text: str) -> None:
    local = "".join(reversed("tercesrepus"))
    raise ValueError(text if local else "")


def lines_of(stream: io.StringIO) -> list[str]:
    # As a reader of the file sees them: `splitlines` knows more line ends than that.
    return stream.getvalue().rstrip("\n").split("\n")


@pytest.mark.usefixtures("root")
def test_json_is_an_object_a_line():
    """Time, level, logger, message and the record's own fields."""
    stream = io.StringIO()
    log.configure("info", "json", stream=stream)
    fields = {"job_id": ID, "kind": "send", "attempt": 2, "worker": "w", "queue": "mail"}
    logging.getLogger("rowlock.worker").warning("%s failed", "it", extra=fields)
    logging.getLogger("other").debug("too fine")
    (line,) = map(json.loads, lines_of(stream))

    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning", "logger": "rowlock.worker", "message": "it failed", **fields
    }  # fmt: skip


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("format", ["console", "json"])
def test_details_are_lines_or_fields(format):
    """What a worker says of itself: aligned below the record, or beside its message."""
    stream = io.StringIO()
    log.configure("info", format, stream=stream)
    details = {"database": "postgresql://me:hunter2@db/jobs", "tasks": ["a", HOSTILE], "slots": 2}
    logging.getLogger("rowlock.worker").info("it starts", extra={DETAILS: details})
    first, *others = lines_of(stream)

    assert "hunter2" not in stream.getvalue()
    if format == "json":
        line = json.loads(first)
        assert (line["message"], line["tasks"], line["slots"]) == ("it starts", ["a", HOSTILE], 2)
        assert line["database"] == "postgresql://me:***@db/jobs"
    else:
        assert first.endswith("rowlock.worker: it starts")
        assert [line.split()[0] for line in others] == ["database", "tasks", "slots"]
        assert others[0] == "    database  postgresql://me:***@db/jobs"
        assert all(line.isprintable() for line in others)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("has_jobs", [True, False])
def test_jobs_that_end_well_can_be_left_out(has_jobs):
    """By their own logger, in this process and in those that it starts."""
    stream = io.StringIO()
    log.configure("info", "console", has_jobs=has_jobs, stream=stream)
    report([RunSettlement(Lease(id=ID, token=1, worker="w"), Succeeded(), seconds=0.0015)])
    log.configure("info", "console")

    assert (f"job {ID} succeeded after 1.5 ms" in stream.getvalue()) is has_jobs


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("format", ["console", "json"])
def test_no_text_makes_a_line_or_acts_on_a_terminal(format):
    """Control characters in messages, names, fields and errors are written out."""
    stream = io.StringIO()
    log.configure("info", format, stream=stream)
    try:
        fail(HOSTILE)
    except ValueError:
        logging.getLogger(HOSTILE).exception(
            "job of %s", HOSTILE, extra={"job_id": ID, "queue": HOSTILE}
        )
    first, *others = lines_of(stream)

    assert stream.getvalue().replace("\n", "").isprintable()
    assert all(line.startswith("    ") for line in others)
    assert (format == "json") is (others == [])
    assert ID in first


@pytest.mark.usefixtures("root")
def test_colours_only_on_a_terminal(monkeypatch):
    """A level is coloured on a terminal, and not in a pipe or with NO_COLOR."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    streams = [Terminal(), io.StringIO(), Terminal()]
    for number, stream in enumerate(streams):
        if number == 2:
            monkeypatch.setenv("NO_COLOR", "1")
        log.configure("info", "console", stream=stream)
        logging.getLogger("x").info("hello")

    assert ["\x1b" in stream.getvalue() for stream in streams] == [True, False, False]
    assert "INFO    x: hello\n" in streams[1].getvalue()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("format", ["console", "json"])
def test_a_handlers_records_are_its_jobs(format):
    """What any library logs inside of a handler carries the job's fields, and nothing after it."""
    stream = io.StringIO()
    log.configure("info", format, stream=stream)
    with running(Lease(id=ID, token=1, worker="w-1")):
        logging.getLogger("some.library").info("inside")
        logging.getLogger("some.library").info("its own", extra={"worker": "mine"})
    logging.getLogger("some.library").info("outside")
    inside, own, outside = lines_of(stream)

    assert ID in inside and ID in own
    assert (format == "json",) * 2 + (False,) == ("w-1" in inside, "mine" in own, "w-1" in own)
    assert ID not in outside


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:geheim@host/db", "postgresql://me:***@host/db"),
        (
            "to postgres://me:ge@he:im@host:5432/db failed",
            "to postgres://me:***@host:5432/db failed",
        ),
        ("postgresql://host/db?password=geheim&x=1", "postgresql://host/db?password=***&x=1"),
        ("postgresql://h/db?sslpassword=geheim&x=1", "postgresql://h/db?sslpassword=***&x=1"),
        ("postgresql://h/db?scram_client_key=ge+heim=", "postgresql://h/db?scram_client_key=***"),
        ("host=h oauth_client_secret=geheim", "host=h oauth_client_secret=***"),
        ("host=h PASSWORD = 'ge heim' user=u", "host=h PASSWORD = *** user=u"),
        ("https://example.com:8080/a and a@b.c", "https://example.com:8080/a and a@b.c"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_what_looks_like_a_password_is_masked(text, shown):
    """URLs and connection strings keep everything but their password."""
    assert log.masked(text) == shown


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("format", ["console", "json"])
def test_neither_passwords_nor_locals_are_in_tracebacks(format):
    """A traceback is masked like a message, and shows code, not the values of variables."""
    stream = io.StringIO()
    log.configure("info", format, stream=stream)
    try:
        fail("no answer of postgresql://me:geheim@host/db")
    except ValueError:
        logging.getLogger("x").exception("bad")

    assert "no answer of postgresql://me:***@host/db" in stream.getvalue()
    assert "geheim" not in stream.getvalue()
    assert "supersecret" not in stream.getvalue()


@pytest.mark.usefixtures("root")
def test_lines_are_bounded():
    """A message of megabytes is cut, and says so."""
    stream = io.StringIO()
    log.configure("info", "console", stream=stream)
    logging.getLogger("x").info("://" * 1_000_000)

    assert len(stream.getvalue()) < config.LOGGED_CHARACTERS_MAX + 200
    assert "more]" in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "format", "expected"),
    [
        ("debug", "json", (logging.DEBUG, log.JsonFormatter)),
        ("WARNING", "JSON", (logging.WARNING, log.JsonFormatter)),
        ("nonsense", "", (logging.INFO, log.ConsoleFormatter)),
    ],
)
def test_children_do_as_told(root, monkeypatch, level, format, expected):
    """A child reads its parent's choice from the environment; nonsense is the default."""
    monkeypatch.setenv("ROWLOCK_LOG_LEVEL", level)
    monkeypatch.setenv("ROWLOCK_LOG_FORMAT", format)
    log.configure_from_environment()
    (handler,) = root.handlers

    assert (root.level, type(handler.formatter)) == expected
    assert sys.stderr is handler.stream

"""Text that anyone may choose is read in a time that grows with its length, and no faster.

The texts repeat what each pattern begins with, so that one that backtracks would take minutes for
the lengths that are possible here. Each takes milliseconds.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import threading
from collections.abc import Callable

import msgspec
import pytest
from starlette.datastructures import QueryParams

from rowlock import codec, config, misfits
from rowlock.cli import options, show
from rowlock.contrib.compat import error_again
from rowlock.cron import parse_cron
from rowlock.errors import OptionInvalid
from rowlock.fingerprint import place_of
from rowlock.observe.log import ConsoleFormatter, JsonFormatter, masked
from rowlock.server import json_text
from rowlock.server.problems import Refusal
from rowlock.server.request import decode_body, decode_query, invalid
from rowlock.server.routes.enqueue import NewJobSchema
from rowlock.server.routes.jobs import JobQuery
from rowlock.suggest import nearest
from rowlock.tokens import is_token_id, read_secret

PARTS = (
    "\n", " ", "\t ", "a", "(", "[", "-", "0", "9.", "'", '"', "\\", "\\u", "\\ud800", "$`", '\\"',
    "` - at `$", " - at `key` in `$", "://", "://a:", "://:@", "password=", "password='",
    "password = '", "PASSWORD=", 'File "', 'File "a", line 1, in ', "at a (", "at async b (c:1:2)",
    "*/1,", "rwl_", "é", "\ud800", "Object contains unknown field `", "{", '{"a":', '"a",',
)  # fmt: skip


def texts(length: int) -> list[str]:
    """Each part repeated, alone and with an end that does not fit."""
    repeated = [part * (length // len(part)) for part in PARTS]
    return [*repeated, *(f"{text}!" for text in repeated), *(f"{text}`" for text in repeated)]


def ignoring(call: Callable[[], object], *errors: type[Exception]) -> None:
    with contextlib.suppress(*errors):
        call()


def format_record(text: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, text, None, None)
    JsonFormatter().format(record)
    ConsoleFormatter(has_colours=False).format(record)


def refuse(text: str) -> None:
    invalid(msgspec.ValidationError(text))
    misfits.described(ValueError(text))


def read_query(text: str) -> None:
    sent = text.encode("utf-8", "replace").decode()
    query = QueryParams([("limit", sent), ("cursor", sent)])
    ignoring(lambda: decode_query(query, JobQuery), Refusal)


def read_body(text: str) -> None:
    body = text.encode("utf-8", "replace")
    ignoring(lambda: decode_body(body, NewJobSchema), Refusal)
    json_text.lone_surrogate(body)
    json_text.weight(body)
    json_text._STRING.sub(b"", b'"' + body)
    ignoring(
        lambda: list(json_text.Reader(memoryview(body)).items("x")),
        msgspec.DecodeError,
        RecursionError,
        json_text.TooLong,
    )


def clean(text: str) -> None:
    codec.clean_text(text, bytes_max=1_000)
    codec.escaped(text)
    codec.find_problems({"a": text, text: 1})


READERS: dict[str, tuple[Callable[[str], object], int]] = {
    "fingerprint": (place_of, config.ERROR_BYTES_MAX),
    "log": (format_record, 200_000),
    "masked": (masked, 200_000),
    "refusal": (refuse, 200_000),
    "query": (read_query, config.HTTP_HEADER_BYTES_MAX),
    "body": (read_body, 100_000),
    "codec": (clean, 50_000),
    "token": (lambda text: (read_secret(text), is_token_id(text)), config.HTTP_HEADER_BYTES_MAX),
    "cron": (lambda text: ignoring(lambda: parse_cron(text), OptionInvalid), 20_000),
    "suggestion": (lambda text: nearest(text, [text[:200] + "x", "y" + text]), 200_000),
    "duration": (options._seconds, 200_000),
    "shown": (lambda text: (show.as_json({"a": text}), show.escaped_lines(text)), 20_000),
    "key error": (lambda text: error_again("KeyError", text), config.ERROR_BYTES_MAX),
}


@pytest.mark.parametrize("name", READERS)
def test_hostile_text_is_read_in_no_time(name):
    """Far fewer seconds than backtracking would take, on any machine."""
    read, length = READERS[name]
    work = threading.Thread(target=lambda: [read(text) for text in texts(length)], daemon=True)
    work.start()
    work.join(120)

    assert not work.is_alive()


def test_only_short_keys_are_evaluated(monkeypatch):
    """The parser takes a hundred times the memory of its text, and recurses."""
    evaluated: list[int] = []
    evaluate = ast.literal_eval

    def counted(text: str) -> object:
        evaluated.append(len(text))
        return evaluate(text)

    monkeypatch.setattr(ast, "literal_eval", counted)
    messages = ("'a'", "(1, 2)", "[" * 60_000, "-" * 999)
    keys = [error_again("KeyError", text).args[0] for text in messages]

    assert keys == ["a", (1, 2), "[" * 60_000, "-" * 999]
    assert evaluated == [3, 6, 999]

"""Fingerprints: what died of the same has the same, whatever the message and the line."""

from __future__ import annotations

import traceback

import pytest

from rowlock.fingerprint import fingerprint, place_of
from rowlock.job import JobError

PYTHON = """Traceback (most recent call last):
  File "/srv/releases/41/shop/mail.py", line 12, in send
    smtp.connect()
  File "/usr/lib/python3.11/smtplib.py", line 341, in connect
    raise OSError
OSError: no
"""
NODE = """Error: no
    at connect (node:net:1:2)
    at async send (/srv/shop/mail.js:10:5)
    at run (/srv/shop/worker.js:3:1)
"""


def error(traceback: str = PYTHON, *, type: str = "OSError", message: str = "no") -> JobError:
    return JobError(1, 0, type, message, traceback)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (PYTHON, "shop/mail.py send"),
        (NODE, "shop/mail.js send"),
        ("", ""),
        ("no frames here", ""),
        ('  File "<string>", line 1, in <module>\n', "<string> <module>"),
        ("    at work (/srv/shop/v2:10:5)\n", "shop/v2 work"),
        ("    at work (/srv/shop/v2)\n", "shop/v2 work"),
        ("    at new Job (/srv/shop/job.js:1:2)\n    at run (/srv/a/b.js:1:1)", "a/b.js run"),
    ],
)
def test_the_place_is_the_users(text: str, place: str):
    """The innermost frame that is no library's, in either language."""
    assert place_of(text) == place


@pytest.mark.parametrize(
    "text",
    ["\n", " ", 'File "', "at a (", "at a (:1", ":1:1)\n", '", line 1, in \n', "a" * 9 + "\n"],
)
def test_a_text_made_to_be_slow(text: str):
    """Each is read once, however long it is: regular expressions took minutes for some of these."""
    long = text * (2**20 // len(text))

    assert place_of(long) == ""
    assert len(fingerprint("send", error(f"{long}\n{PYTHON}"))) == 16


def test_messages_and_lines_do_not_matter():
    """But kinds, types and places do."""
    same = [
        fingerprint("send", error()),
        fingerprint("send", error(message="other")),
        fingerprint("send", error(PYTHON.replace("line 12", "line 99"))),
        fingerprint("send", error(PYTHON.replace("releases/41", "releases/42"))),
    ]
    others = [
        fingerprint("other", error()),
        fingerprint("send", error(type="ValueError")),
        fingerprint("send", error(PYTHON.replace("in send", "in fetch"))),
    ]

    assert len(set(same)) == 1
    assert len({same[0], *others}) == 4
    assert len(same[0]) == 16


def test_a_real_traceback():
    """As it is stored."""

    def broken() -> None:
        raise ValueError("x")

    try:
        broken()
    except ValueError:
        text = traceback.format_exc()

    assert place_of(text) == "tests/test_fingerprint.py broken"


def test_any_text_is_taken():
    """Lone surrogates, endless lines, a million frames."""
    assert len(fingerprint("k\ud800", error('File "' * 10_000, type="\ud800"))) == 16
    assert len(place_of(f'  File "{"x" * 5_000}", line 1, in f\n')) <= 200

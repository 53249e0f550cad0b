"""The pages about HTTP are right: the transcripts run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import rowlock
from rowlock.server.serve import HttpServer
from tests.docs.pages import Page, read_pages

ADDRESS = "http://127.0.0.1:8765"
TRANSCRIPTS = [page for page in read_pages() if page.of("console")]


@contextmanager
def served(url: str) -> Iterator[str]:
    """A server as in the pages: without an app of its own."""
    with rowlock.App(url) as app, HttpServer(app, host="127.0.0.1", port=0, is_open=True) as server:
        yield server.address


def exchanges(page: Page) -> Iterator[tuple[str, str]]:
    """Each command of the page's transcripts, and what it prints."""
    for block in page.of("console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output.strip()


def as_pattern(output: str) -> str:
    """What is left out of an output stands for anything."""
    return ".*".join(map(re.escape, output.split("…")))


@pytest.mark.parametrize("page", TRANSCRIPTS, ids=lambda page: page.name)
def test_transcripts_run_as_written(page: Page, any_url: str):
    """In one shell, one after the other, but for the port; each prints what the page shows."""
    told = list(exchanges(page))
    with served(any_url) as address:
        script = "\n".join(
            f"{command.replace(ADDRESS, address)}\necho\necho '#### {place}'"
            for place, (command, _) in enumerate(told)
        )
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    printed = re.split(r"^#### \d+\n", done.stdout, flags=re.MULTILINE)

    assert done.returncode == 0, done.stderr
    for (command, output), text in zip(told, printed, strict=False):
        assert re.fullmatch(as_pattern(output), text.strip(), re.DOTALL), (command, text)


def test_transcripts_are_there():
    """In the README and in the how-to."""
    assert {"README.md", "docs/how-to/http.md"} <= {page.name for page in TRANSCRIPTS}

"""What the documentation says is so: its code runs, its links lead somewhere, nothing is left out.

The blocks of one page share a namespace and a directory, and run in their order. A block with a
title is a file. A text block directly after one of Python is what it prints. Lines of `sh` blocks
that call `rowlock` are run too, except those that go on until they are interrupted; a comment can
let them run beside the rest of the page. Every block of Python runs; those that would change the
whole process for others, in one of their own.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import rowlock
from rowlock.cli import main
from tests.docs.pages import DOCS, ROOT, Block, Page, read_blocks, read_pages, with_outputs

MODULE = "rowlock_documentation"
URL = "ROWLOCK_DATABASE_URL"
ENDLESS = re.compile(r"rowlock (dev postgres|(.*\b)?(up|worker|serve)\b(?!.*--drain).*)")

# One sentence a line; an abbreviation or an ellipsis ends none.
TWO_SENTENCES = re.compile(r"[a-z0-9`)\]*][.!?] [A-Z`*]")

pages = pytest.mark.parametrize("page", read_pages(), ids=lambda page: page.name)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module for the code of a page, in a directory of its own; what it opened is closed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(URL, raising=False)
    # Some frameworks set the root logger.
    monkeypatch.setattr(logging.root, "handlers", list(logging.root.handlers))
    level = logging.root.level
    known = set(sys.modules)
    module = sys.modules[MODULE] = ModuleType(MODULE)
    opened: list[Any] = []
    make = rowlock.App.__init__

    def noted(self: rowlock.App, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        opened.append(self)

    monkeypatch.setattr(rowlock.App, "__init__", noted)
    yield module
    logging.root.setLevel(level)
    for value in [*opened, *vars(module).values()]:
        if isinstance(value, rowlock.App) or type(value).__name__ == "Connection":
            value.close()
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name == MODULE or file.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def beside(place: ModuleType) -> Iterator[Callable[[Block], None]]:
    """Starts the commands of a block, which run until the end of the page."""
    started: list[subprocess.Popen[bytes]] = []

    def start(block: Block) -> None:
        for line in block.text.splitlines():
            words = [sys.executable, "-m", "rowlock", *shlex.split(line)[1:]]
            started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))

    yield start
    for process in started:
        process.terminate()
        assert process.wait(60) == 0


@pages
def test_code_runs(page, place, request, monkeypatch, capsys):
    """Every block of a page runs, after those above it, and prints what the page says."""
    if page.needs_postgres:
        monkeypatch.setenv(URL, request.getfixturevalue("postgres_url"))
    for block in page.blocks:
        if block.is_beside:
            request.getfixturevalue("beside")(block)
        elif block.language == "sh":
            run_commands(block)
        elif block.language == "python":
            run_python(page, block, place)
            printed = capsys.readouterr().out
            if block.output is not None:
                assert block.output == printed, f"{page.name}:{block.line}"
        elif block.title is not None:
            Path(block.title).write_text(block.text, "utf-8")


def run_python(page: Page, block: Block, module: ModuleType) -> None:
    # Blank lines before it, so that a traceback names the page's own lines.
    text = "\n" * (block.line - 1) + block.text
    code = compile(text, page.path, "exec", dont_inherit=True)
    if block.title is not None:
        path = Path(block.title)
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text, "utf-8")
    elif block.is_apart:
        sys.stdout.write(run_apart([sys.executable, "-W", "error", "-c", text]))
    else:
        exec(code, vars(module))


def run_commands(block: Block) -> None:
    for line in block.text.splitlines():
        command = line.partition("#")[0].strip()
        if command.startswith("rowlock") and not ENDLESS.fullmatch(command):
            run_command(shlex.split(command)[1:])


def run_command(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments, prog_name="rowlock", env=database_of(arguments))

    assert done.exit_code == 0, f"{arguments}: {done.output}{done.exception!r}"


def database_of(arguments: list[str]) -> dict[str, str]:
    """The variable that a reader has set, for a command that names no database.

    A file that a command names is there, too.
    """
    named = arguments[1] if arguments[0] == "--database-url" else "sqlite:///readers.db"
    if URL in os.environ or "--app" in arguments:
        return {}
    with rowlock.App(named) as app:
        app.migrate()
        return {URL: app.url}


def run_apart(words: list[str]) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pages
def test_links_lead_somewhere(page):
    """Every relative link names a file that is there, and a heading that it has."""
    links = re.findall(r"\]\(([^)\s]+)\)", page.prose)
    links += re.findall(r'\b(?:src|srcset)="([^"]+)"', page.prose)
    relative = [link for link in links if not re.match(r"[a-z]+:", link)]

    assert [link for link in relative if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Page, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.path.parent / name).resolve() if name else page.path
    if page.path.is_relative_to(DOCS) and not target.is_relative_to(DOCS):
        return False  # It is not part of the site.
    if target.suffix != ".md":
        anchor = ""  # An anchor of a picture says in which colours of the page it is shown.
    return target.is_file() and (not anchor or anchor in anchors(target.read_text("utf-8")))


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_navigation_is_complete():
    """The site's navigation names every page, and no other."""
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}

    assert there == set(leaves(settings["project"]["nav"]))


def test_the_home_page_links_every_page():
    """A reader who searches the home page finds what there is."""
    home = (DOCS / "index.md").read_text("utf-8")
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}

    assert [name for name in sorted(there - {"index.md"}) if f"]({name})" not in home] == []


def leaves(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for item in nav:
                yield from leaves(item)
        case dict():
            yield from leaves(list(nav.values()))


@pages
def test_one_sentence_a_line(page):
    """Prose has one sentence a line, so that a change shows what it changed."""
    lines = [line for line in page.prose.splitlines() if not line.startswith(("|", "#"))]

    assert [line for line in lines if TWO_SENTENCES.search(re.sub(r"^\d+\. ", "", line))] == []


def test_blocks_are_read_rightly():
    """A made-up page: a file, code with its output, and code that runs apart."""
    text = (
        'A\n```python title="a.py"\nx = 1\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n'
        "<!-- run apart: a reason -->\n\n```python\ny\n```\nB\n\n```text\nno output\n```\n"
    )
    blocks = with_outputs(read_blocks(text), text.splitlines())

    assert [block.language for block in blocks] == ["python", "python", "text", "python", "text"]
    assert [block.title for block in blocks] == ["a.py", None, None, None, None]
    assert [block.output for block in blocks] == [None, "1\n", None, None, None]
    assert [block.is_apart for block in blocks] == [False, False, False, True, False]
    assert blocks[0].line == 3

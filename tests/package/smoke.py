"""What a new user does first, with the installed wheel alone: run by `make package`.

python smoke.py README.md core      # pip install rowlock
python smoke.py README.md server    # pip install "rowlock[server]"
python smoke.py README.md postgres  # pip install "rowlock[postgres,server]"

It has nothing but the standard library and what was installed, in an empty directory; the checkout
is not on the path. Prints what it measured as JSON; fails with what is wrong.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

JOBS = """
import rowlock

app = rowlock.App("sqlite:///smoke.db")


@app.task
def add(left: int, right: int) -> int:
    return left + right
"""
STARTS = 7
SERVE_SECONDS = 60


def main() -> None:
    readme = Path(sys.argv[1]).resolve().read_text("utf-8")
    installed = sys.argv[2]
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        found = {
            "installed": installed,
            "python": sys.version.split()[0],
            "rowlock": check_version(),
            **CHECKS[installed](readme),
            "packages_mib": packages_mib(),
        }
        os.chdir("/")
    sys.stdout.write(json.dumps(found) + "\n")


def check_core(readme: str) -> dict[str, object]:
    """SQLite and the worker, and a hint what to install for the rest."""
    check_files()
    run_quickstart(readme)
    run_worker()
    refused("rowlock[server]", "--app", "jobs:app", "serve")
    refused("rowlock[metrics]", "--app", "jobs:app", "worker", "--metrics-port", "18764")
    refused("rowlock[postgres]", "--database-url", "postgresql:///x", "jobs", "list")
    return {"import_ms": import_ms(), "rowlock_mib": installed_mib()}


def check_server(readme: str) -> dict[str, object]:
    """The API and the dashboard, too."""
    run_worker()
    serve()
    return {}


def check_postgres(readme: str) -> dict[str, object]:
    """What production has: the driver is there, and so only the server is missing."""
    check_server(readme)
    refused("127.0.0.1", "--database-url", "postgresql://127.0.0.1:1/x", "jobs", "list")
    refused("rowlock[dev]", "dev", "postgres")
    return {}


CHECKS: dict[str, Callable[[str], dict[str, object]]] = {
    "core": check_core,
    "server": check_server,
    "postgres": check_postgres,
}


def check_version() -> str:
    told = run("--version")
    known = version("rowlock")
    assert known in told, f"rowlock --version says {told!r}, and {known} is installed"
    return known


def check_files() -> None:
    package = files("rowlock")
    for name in ("py.typed", "dashboard/index.html", "store/sql/claim.sql"):
        assert package.joinpath(name).is_file(), f"{name} is not in the wheel"
    assert "site-packages" in str(package), f"{package} is not what was installed"


def run_quickstart(readme: str) -> None:
    """The README's first file, its first block without a title, and what that prints."""
    blocks = re.findall(r'```(?:python|text)(?: title="(.+?)")?\n(.*?)```', readme, re.DOTALL)
    (name, text), (_, code), (_, said) = blocks[:3]
    Path(name).write_text(text, "utf-8")
    sys.path.insert(0, "")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "quickstart"})
    assert printed.getvalue() == said, f"the quickstart printed {printed.getvalue()!r}"


def run_worker() -> None:
    """A job by the command line, and a real worker."""
    Path("jobs.py").write_text(JOBS, "utf-8")
    job = json.loads(
        run("--app", "jobs:app", "enqueue", "add", '{"left": 2, "right": 3}', "--json")
    )
    run("--app", "jobs:app", "worker", "--drain")
    done = json.loads(run("--app", "jobs:app", "jobs", "show", job["id"], "--json"))
    assert (done["state"], done["result"]) == ("succeeded", 5), done


def serve() -> None:
    """The API and the dashboard."""
    port = 18_765 + os.getpid() % 1_000
    words = ["--app", "jobs:app", "serve", "--open", "--port", str(port)]
    server = subprocess.Popen(command(*words), stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + SERVE_SECONDS
        while True:
            try:
                page = read(f"http://127.0.0.1:{port}/")
                break
            except OSError:
                assert time.monotonic() < end and server.poll() is None, "no server came up"
                time.sleep(0.1)
        assert "<html" in page, page
        assert json.loads(read(f"http://127.0.0.1:{port}/v1/jobs"))["jobs"]
    finally:
        server.terminate()
        server.wait()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def import_ms() -> float:
    """What `import rowlock; rowlock.App` takes of a processor, beyond the start of Python."""
    return round(1_000 * (least_seconds("import rowlock; rowlock.App") - least_seconds("pass")), 1)


def least_seconds(code: str) -> float:
    return min(seconds_of(code) for _ in range(STARTS))


def seconds_of(code: str) -> float:
    """Time of a processor: others may be busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def installed_mib() -> float:
    """The package itself, without what it depends on."""
    sizes = [
        path.stat().st_size
        for path in Path(str(files("rowlock"))).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return round(sum(sizes) / 2**20, 2)


def packages_mib() -> float:
    """All packages of the environment, without those that every environment has."""
    site = Path(str(files("rowlock"))).parent
    skipped = ("pip", "setuptools", "__pycache__", "_distutils_hack")
    sizes = [
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and not path.relative_to(site).parts[0].startswith(skipped)
    ]
    return round(sum(sizes) / 2**20, 1)


def refused(hint: str, *words: str) -> None:
    """A command that fails, with a text that says what is missing."""
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    assert done.returncode != 0, f"rowlock {words} did not fail"
    assert hint in done.stderr, f"rowlock {words} does not name {hint}: {done.stderr}"


def run(*words: str) -> str:
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"rowlock {words}: {done.stdout}{done.stderr}"
    return done.stdout


def command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("rowlock")), *words]


if __name__ == "__main__":
    main()

"""Run Django's own tests of its tasks against rowlock's backend: `make django-suite`.

They come with Django's source package. They are written for Django's two backends, so rowlock's
takes the place of each (see `rig.py`), and tests may use a database. Nothing else is changed.
The package of the backport `django-tasks` has no tests. So on Django 5.2 the same tests are run,
without those that the backport fails with its own backends.

`DIFFERENCES` has every test that fails, and why. The run fails if it is not true.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import django

ROOT = Path(__file__).parents[3]
IS_BACKPORT = find_spec("django.tasks") is None
# For a Django without tasks of its own.
TESTS_OF = "6.1.3"
ROWLOCKS = (
    (r"django\.tasks\.backends\.dummy\.DummyBackend", "rig.Waiting"),
    (r"from django\.tasks\.backends\.dummy import", "from rig import Waiting as"),
    (r"django\.tasks\.backends\.immediate\.ImmediateBackend", "rig.Draining"),
    (r"from django\.tasks\.backends\.immediate import", "from rig import Draining as"),
    (r"\bSimpleTestCase\b", "TestCase"),
)
BACKPORTS = (
    (
        r"from django\.tasks import Task, ",
        "from django_tasks.base import Task\nfrom django_tasks import ",
    ),
    (r"\bdjango\.tasks\b", "django_tasks"),
    (r"\b(InvalidTask|InvalidTaskBackend)\b", r"\1Error"),
)
SETTINGS = """
SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["rowlock.contrib.django", "tasks"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {"default": {"BACKEND": "rig.Waiting"}}
SILENCED_SYSTEM_CHECKS = ["rowlock.W001"]
"""
# Runs the tests, and prints how each ended as a line of JSON.
RUN = """
import json, unittest
import django
django.setup()
from django.test.runner import DiscoverRunner

class Result(unittest.TextTestResult):
    ended = {}
    def addSuccess(self, test):
        super().addSuccess(test)
        self.ended.setdefault(test.id(), "")
    def addError(self, test, error):
        super().addError(test, error)
        self.ended[test.id()] = repr(error[1])
    addFailure = addError
    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.ended[test.id()] = repr(error[1])

class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result

Runner(verbosity=0, interactive=False).run_tests(["tasks"])
print(json.dumps(Result.ended))
"""

MEMORY = "it changes a result in the memory of Django's DummyBackend"
MORE = "it asserts that Django's ImmediateBackend can't do what rowlock can"
VALUE = (
    "a value that is not JSON does not fail the task: return_value is None, and a log line says so"
)
COROUTINE = "it refreshes a result without await in a coroutine, where Django forbids queries"
DUMMY = "tasks.test_dummy_backend.DummyBackendTestCase"
IMMEDIATE = "tasks.test_immediate_backend.ImmediateBackendTestCase"
DIFFERENCES = {
    f"{DUMMY}.test_refresh_result": MEMORY,
    f"{DUMMY}.test_refresh_result_async": MEMORY,
    f"{IMMEDIATE}.test_cannot_get_result": MORE,
    f"{IMMEDIATE}.test_cannot_pass_run_after": MORE,
    f"{IMMEDIATE}.test_cannot_refresh_result": MORE,
    f"{IMMEDIATE}.test_complex_return_value": VALUE,
    "tasks.test_tasks.TaskTestCase.test_refresh_result": COROUTINE,
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rowlock-upstream-") as name:
        archive = fetch(Path(name))
        theirs = run(archive, Path(name, "theirs"), BACKPORTS) if IS_BACKPORT else {}
        ended = run(archive, Path(name, "ours"), ROWLOCKS + (BACKPORTS if IS_BACKPORT else ()))
    apart = {test for test, error in theirs.items() if error}
    ended = {test: error for test, error in ended.items() if test not in apart}
    failed = {test: error for test, error in ended.items() if error}
    unexpected = sorted(failed.keys() - DIFFERENCES.keys())
    mended = sorted(ended.keys() & DIFFERENCES.keys() - failed.keys())
    for test in unexpected:
        say(f"FAILED {test}: {failed[test]}")
    for test in mended:
        say(f"PASSED {test}, which is listed as a difference")
    for reason, count in Counter(
        DIFFERENCES[test] for test in failed if test in DIFFERENCES
    ).items():
        say(f"{count} differ: {reason}")
    if apart:
        say(f"{len(apart)} left out: django-tasks fails them with its own backends")
    say(f"Django {django.__version__}: {len(ended) - len(failed)} of {len(ended)} tests pass")
    sys.exit(bool(mended or unexpected))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def fetch(place: Path) -> Path:
    """Download the source package of Django."""
    version = TESTS_OF if IS_BACKPORT else django.__version__
    options = ["--quiet", "--no-deps", "--ignore-requires-python"]
    download = ["download", *options, "--no-binary", "django", "--dest", str(place)]
    subprocess.run([sys.executable, "-m", "pip", *download, f"django=={version}"], check=True)
    (archive,) = place.glob("*.tar.gz")
    return archive


def run(archive: Path, place: Path, changes: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Run the tests with changes. Return the error of each, or an empty text."""
    (place / "tasks").mkdir(parents=True)
    with tarfile.open(archive) as files:
        for member in files:
            path = Path(member.name)
            if path.parts[1:3] == ("tests", "tasks") and path.suffix == ".py":
                content = files.extractfile(member)
                assert content is not None
                text = content.read().decode()
                for found, instead in changes:
                    text = re.sub(found, instead, text)
                (place / "tasks" / path.name).write_text(text, "utf-8")
    (place / "rig_settings.py").write_text(SETTINGS, "utf-8")
    rig = Path(__file__).with_name("rig.py").read_text("utf-8")
    (place / "rig.py").write_text(rig, "utf-8")
    paths = os.pathsep.join(map(str, (place, ROOT / "src")))
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=place,
        env={**os.environ, "PYTHONPATH": paths, "DJANGO_SETTINGS_MODULE": "rig_settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return ended


if __name__ == "__main__":
    main()

"""The Django project of the examples: its tests, a real worker, the dashboard for its staff.

What needs no process of its own is in `django_suite`, which Django's own test runner runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
MANAGE = ROOT / "examples" / "django_project" / "manage.py"
SUITES = sorted(path.stem for path in (ROOT / "tests/contrib/django_suite").glob("suite_*.py"))

# Each starts several processes, every one of which imports Django.
pytestmark = pytest.mark.timeout(400)

# Of an environment with another Django: `make django6`.
PYTHON = os.environ.get("ROWLOCK_TEST_DJANGO_PYTHON", sys.executable)

Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["sqlite", "postgres"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Of a project on an empty database of the test's own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    clean |= {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "SHOP_FILE": str(tmp_path / "shop.sqlite3"),
    }
    if request.param == "postgres":
        clean["SHOP_POSTGRES"] = request.getfixturevalue("empty_postgres_url")
    return clean


@pytest.fixture
def manage(environment: dict[str, str], tmp_path: Path) -> Manage:
    """Run `manage.py`, from elsewhere than its directory."""

    def manage(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PYTHON, str(MANAGE), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done

    return manage


@contextmanager
def running(environment: dict[str, str], cwd: Path, *words: str) -> Iterator[Any]:
    """A process that goes on until it is told to stop, and then ends well."""
    with subprocess.Popen(
        [PYTHON, *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=60)
        except BaseException:
            process.kill()
            raise
    # uvicorn ends by the signal that it was told by, after all else.
    assert process.returncode in (0, -signal.SIGTERM), said


@pytest.mark.long
def test_suite(manage):
    """Django's own test runner finds nothing wrong, and can drop its database afterwards."""
    labels = [f"tests.contrib.django_suite.{name}" for name in SUITES]
    done = manage("test", "--noinput", *labels)

    assert "\nOK\n" in done.stderr
    assert "rowlock.W" not in done.stderr


# Makes purchases, some of them in transactions that fail; prints the results of their jobs.
SCENARIO = """
import json, time
from django.db import transaction
from rowlock.contrib.django import app
from shop.models import Purchase
from shop.tasks import confirm, confirm_later, count, lose_connection, reluctant

results = []
for number in range(6):
    try:
        with transaction.atomic():
            Purchase.objects.create(number=number)
            task = confirm_later if number % 3 == 0 else confirm
            result = task.enqueue(number)
            if number % 2:
                raise InterruptedError
    except InterruptedError:
        continue
    results.append(result)
    results.append(lose_connection.enqueue())
results.append(reluctant.enqueue(2))
results.append(reluctant.enqueue(3))
job = count.enqueue(least=1)

end = time.monotonic() + 60
while time.monotonic() < end and not all(result.is_finished for result in results):
    time.sleep(0.05)
    for result in results:
        result.refresh()
print(json.dumps({
    "statuses": [(result.task.name, result.status, result.attempts) for result in results],
    "jobs": len(app.list(limit=100).jobs),
    "confirmed": list(Purchase.objects.filter(is_confirmed=True).values_list("number", flat=True)),
    "purchases": Purchase.objects.count(),
    "count": app.wait(job.id, timeout=60).result,
    "limits": sorted({job.limit for job in app.list(limit=100).jobs if job.limit}),
}))
"""


@pytest.mark.long
def test_worker(manage, environment, tmp_path):
    """Jobs of committed transactions are run by a worker, those of others never existed.

    Some of them have a limit, which the worker declares though its connections are not Django's.
    """
    assert "rowlock" in manage("migrate").stdout
    with running(
        environment, tmp_path, str(MANAGE), "rowlock", "worker", "-c", "1", "--grace", "30"
    ):
        said = manage("shell", "-v", "0", "-c", SCENARIO).stdout
        told = json.loads(said.splitlines()[-1])

    assert told["statuses"] == [
        ["confirm_later", "SUCCESSFUL", 1],
        ["lose_connection", "SUCCESSFUL", 1],
        ["confirm", "SUCCESSFUL", 1],
        ["lose_connection", "SUCCESSFUL", 1],
        ["confirm", "SUCCESSFUL", 1],
        ["lose_connection", "SUCCESSFUL", 1],
        ["reluctant", "SUCCESSFUL", 2],
        ["reluctant", "FAILED", 2],
    ]
    assert {
        name: sorted(told[name]) if name == "confirmed" else told[name]
        for name in ("jobs", "confirmed", "purchases", "count", "limits")
    } == {
        "jobs": 9,
        "confirmed": [0, 2, 4],
        "purchases": 3,
        "count": 2,
        "limits": ["mail-server"],
    }
    assert "shop.tasks.confirm" in manage("rowlock", "jobs", "list").stdout


@pytest.mark.parametrize("environment", ["postgres"], indirect=True)
def test_worker_without_tables(environment, tmp_path):
    """It names the command of a Django project, and ends with the code for that."""
    done = subprocess.run(
        [PYTHON, str(MANAGE), "rowlock", "worker", "--start-timeout", "0"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 5, done.stderr
    assert "no rowlock tables yet" in done.stderr
    assert "run `python manage.py migrate`" in done.stderr


@pytest.mark.parametrize("environment", ["sqlite"], indirect=True)
def test_dashboard(manage, environment, tmp_path):
    """The staff is let in by Django's login, others are sent there or refused."""
    manage("shell", "-v", "0", "-c", USERS)
    project = {
        **environment,
        "PYTHONPATH": os.pathsep.join(map(str, (MANAGE.parent, ROOT / "src", ROOT))),
    }
    words = ("-m", "uvicorn", "--port", "0", "--lifespan", "off", "site_of_shop.asgi:application")
    with running(project, tmp_path, *words) as process:
        started = iter(process.stdout.readline, "")
        line = next(line for line in started if "running on" in line)
        address = line.split("running on ")[1].split()[0]
        assert [entry(address, name) for name in (None, "bo", "ada")] == [302, 403, 200]


USERS = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth.models import User
User.objects.create_superuser("ada", password="x")
User.objects.create_user("bo", password="x", is_staff=True)
"""


def entry(address: str, name: str | None) -> int:
    """How the dashboard answers to somebody; with everything below it, once it lets them in."""
    with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
        if name is not None:
            log_in(client, name)
        answer = client.get("/jobs/")
        if answer.status_code == 302:
            assert answer.headers["location"] == "/admin/login/?next=/jobs/"
        if answer.status_code == 200:
            assert client.get("/jobs/v1/stats").status_code == 200
            assert client.get("/jobsters").status_code == 404
            job = client.post("/jobs/v1/jobs", json={"kind": "greet", "payload": {"name": "Ada"}})
            assert job.status_code == 201
            elsewhere = {"origin": "https://elsewhere.example"}
            assert client.post("/jobs/v1/jobs", json={}, headers=elsewhere).status_code == 403
        return answer.status_code


def log_in(client: httpx.Client, name: str) -> None:
    page = client.get("/admin/login/").text
    hidden = page.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
    form = {"username": name, "password": "x", "csrfmiddlewaretoken": hidden}
    answer = client.post("/admin/login/?next=/admin/", data=form)
    assert answer.status_code == 302


@pytest.mark.parametrize("environment", ["sqlite"], indirect=True)
def test_broken_settings(environment, tmp_path):
    """A worker of a project whose settings are wrong says so, and ends."""
    (tmp_path / "broken.py").write_text(
        "from site_of_shop.settings import *\nROWLOCK = {'DATABSE': 'default'}\n", "utf-8"
    )
    done = subprocess.run(
        [PYTHON, str(MANAGE), "rowlock", "worker", "--settings", "broken"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode != 0
    assert "Did you mean 'DATABASE'?" in done.stderr

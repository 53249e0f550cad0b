"""Projects written for Celery load with nothing but their imports changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rowlock.contrib.celery import Unsupported, replace_celery
from tests.contrib.processes import ROOT, environment_of

PROJECT = Path(__file__).with_name("celery_project")
ENDED = "[(True, 'SUCCESS'), (True, 'SUCCESS'), (True, 'REVOKED')]"
MOVED = "from rowlock.contrib.celery import replace_celery\n\nreplace_celery()\n"
# What is refused, and the beginning of what is said.
REFUSED = {
    "at_most_once": "Unsupported: @task acks_late=False",
    "pickled": "Unsupported: @task serializer='pickle'",
    "with_a_backend": "Unsupported: @task backend='rpc://'",
}


def load(which: str, url: str) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.contrib.celery_corpus", which],
        cwd=ROOT, env=environment_of(url), capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return loaded


def test_the_corpus_loads(sqlite_url: str):
    """Ten of eleven app modules, and 95 % of the declarations; Celery itself loads all of them."""
    real, shim = load("celery", sqlite_url), load("shim", sqlite_url)

    assert {*real["apps"].values(), *real["tasks"].values()} == {"loads"}
    refused = {name: text for name, text in shim["tasks"].items() if text != "loads"}
    assert set(refused) == set(REFUSED)
    assert [refused[name].startswith(text) for name, text in REFUSED.items()] == [True] * 3
    assert len(refused) <= 0.05 * len(shim["tasks"])
    apps = {name: text for name, text in shim["apps"].items() if text != "loads"}
    assert set(apps) == {"database_beat"}
    assert "beat_schedule" in apps["database_beat"]


def test_a_django_project(tmp_path: Path):
    """Settings, discovery, routes, schedules, hooks, signals, retries, canvases, and a worker.

    Its broker is not used. Two lines are added to it, and nothing else is changed.
    """
    shutil.copytree(PROJECT, tmp_path / "project")
    package = tmp_path / "project" / "proj" / "__init__.py"
    package.write_text(MOVED + package.read_text("utf-8"), "utf-8")
    url, notes = f"sqlite:///{tmp_path}/queue.db", tmp_path / "notes"
    places = {"SHOP_FILE": str(tmp_path / "shop.db"), "SHOP_NOTES": str(notes)}
    done = subprocess.run(
        [sys.executable, "walk.py"],
        cwd=tmp_path / "project",
        env=environment_of(url, **places),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['reports', 'default', 'default'] ['PENDING', 'PENDING', 'PENDING']",
        "['SUCCESS', 'FAILURE', 'SUCCESS'] 31",
        f"{ENDED} ['berlin: 1 parcel', 'berlin-0, berlin-1, berlin-2']",
        "(14, 10)",
        "['nightly: 0 3 * * * in Europe/Berlin', 'often: */10 * * * * in Europe/Berlin']",
    ]
    told = notes.read_text("utf-8").splitlines()
    assert (told[:2], told[-1]) == (["logging", "process"], "shutdown")
    assert "Request: proj.celery.debug_task" in told
    assert "shop.tasks.charge(5,) failed: ConnectionError('order 5')" in told
    assert "signal: shop.orders.pay failed: Unpaid(14, 10)" in told
    assert "errback: Unpaid(14, 10)" in told
    assert "secret" not in done.stderr


def test_celery_is_not_replaced_after_its_import():
    """Two modules of one name would be in the process."""
    import celery  # noqa: F401  # this is the point

    with pytest.raises(Unsupported, match="before all other imports"):
        replace_celery()


def test_an_app_that_can_not_be_followed_ends_the_worker(tmp_path: Path):
    """At its start, with what to do, and not in an endless row of new processes."""
    (tmp_path / "shop.py").write_text(
        "from rowlock.contrib.celery import Celery\n"
        "app = Celery('shop')\n"
        "app.config_from_object('shop_settings')\n",
        "utf-8",
    )
    (tmp_path / "shop_settings.py").write_text("task_serializer = 'pickle'\n", "utf-8")
    worker = [sys.executable, "-m", "rowlock", "--app", "shop:app", "worker"]
    env: dict[str, Any] = environment_of(f"sqlite:///{tmp_path}/queue.db")
    done = subprocess.run(
        worker, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False
    )

    assert done.returncode == 1
    assert "payloads and results are JSON" in done.stderr
    assert "Traceback" not in done.stderr

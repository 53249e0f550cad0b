"""A process as the system shows it: its title, and source files that change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import rowlock
from rowlock import config
from rowlock.worker.process import SourceWatch, Title
from tests.worker.waiting import wait_until

SHOW = """
from pathlib import Path
from rowlock.worker.process import Title
Title("a name that is too long")
print(Path("/proc/self/comm").read_text(), end="")
"""


def test_a_process_has_a_name():
    """The kernel's short name says whose process it is; what does not fit is cut."""
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)

    assert done.stdout == "a name that is \n"


def test_the_full_title_is_shown_at_most_once_a_second(monkeypatch):
    """With setproctitle there is a full one; without, nothing happens."""
    shown: list[str] = []
    now = [0.0]
    monkeypatch.setattr("rowlock.worker.process._prctl", lambda *_: None)
    monkeypatch.setitem(sys.modules, "setproctitle", SimpleNamespace(setproctitle=shown.append))
    title = Title("rowlock", clock=lambda: now[0])
    for second, text in [(0.0, "one"), (0.5, "two"), (1.0, "three"), (9.0, "three")]:
        now[0] = second
        title.show(text)
    monkeypatch.setitem(sys.modules, "setproctitle", None)
    Title("rowlock", clock=lambda: now[0]).show("four")

    assert shown == ["one", "three"]


class Seconds:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def look(watch: SourceWatch, clock: Seconds) -> bool:
    clock.now += config.RELOAD_SECONDS
    return watch.has_changed()


def touch(path: Path) -> None:
    """Write a file, later than before whatever the file system's clock can tell."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.parent.mkdir(exist_ok=True)
    path.write_text("pass\n")
    os.utime(path, ns=(before + 10**9, before + 10**9))


@pytest.mark.parametrize(
    ("name", "is_seen"),
    [
        ("a.py", True),
        ("package/b.py", True),
        ("new.py", True),
        ("notes.txt", False),
        (".venv/c.py", False),
        (".hidden/d.py", False),
        ("__pycache__/e.py", False),
        ("env/f.py", False),
    ],
)
def test_changes_of_sources_are_seen(tmp_path, name, is_seen):
    """Python files below the directory, and no others; each change once."""
    touch(tmp_path / "a.py")
    touch(tmp_path / "package" / "b.py")
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    clock = Seconds()
    watch = SourceWatch(tmp_path, clock=clock)
    before = look(watch, clock)
    touch(tmp_path / name)

    assert (before, look(watch, clock), look(watch, clock)) == (False, is_seen, False)


def test_a_removed_file_is_a_change(tmp_path):
    """Also what is gone may be imported no more."""
    touch(tmp_path / "a.py")
    clock = Seconds()
    watch = SourceWatch(tmp_path, clock=clock)
    (tmp_path / "a.py").unlink()

    assert look(watch, clock)


def test_looks_are_bounded(tmp_path, monkeypatch, caplog):
    """One look a second, at so many files, and that is said."""
    monkeypatch.setattr(config, "RELOAD_FILES_MAX", 2)
    for name in "abc":
        touch(tmp_path / f"{name}.py")
    clock = Seconds()
    watch = SourceWatch(tmp_path, clock=clock)
    look(watch, clock)
    touch(tmp_path / "a.py")

    assert not watch.has_changed()
    assert look(watch, clock)
    touch(tmp_path / "c.py")
    assert not look(watch, clock)
    assert "only 2 files" in caplog.text


def test_a_worker_reloads(tmp_path, sqlite_url):
    """`--reload`: a changed file is what the next job runs; the supervisor stays."""
    source = tmp_path / "reloaded_app.py"
    text = "import rowlock\napp = rowlock.App()\n@app.task\ndef version() -> int:\n    return 1\n"
    source.write_text(text)
    app = rowlock.App(sqlite_url)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rowlock.cli", "--app", "reloaded_app:app", "worker"),
            *("--reload", "--no-cron", "--queues", "default:3,other", "--order", "weighted"),
        ],
        cwd=tmp_path,
        env={**os.environ, "ROWLOCK_DATABASE_URL": sqlite_url, "PYTHONDONTWRITEBYTECODE": "1"},
        stderr=subprocess.DEVNULL,
    )
    try:
        first = app.wait(app.enqueue("version").id, timeout=30).result
        source.write_text(text.replace("return 1", "return 2"))
        wait_until(lambda: app.wait(app.enqueue("version").id, timeout=30).result == 2)

        assert first == 1
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(30)
        app.close()

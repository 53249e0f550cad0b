"""What the system's process list shows of us."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

from rowlock.worker.process import Title

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

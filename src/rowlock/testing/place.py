"""Where a test's app comes from, and where its database lies."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from rowlock.app import App

# Files here are never written to a disk: half of the time of most tests.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a new directory in it is made by `tempfile`
# Nobody connects before the test's own database is there.
_NOWHERE: Final = "sqlite:///rowlock-not-used-in-tests.db"
APP_VARIABLE: Final = "ROWLOCK_APP"


class Places(Protocol):
    """pytest's `tmp_path_factory`."""

    def mktemp(self, basename: str) -> Path: ...


@contextmanager
def new_file(places: Places) -> Iterator[str]:
    """The URL of a SQLite file that is there for as long as the block lasts."""
    if os.access(_MEMORY, os.W_OK):
        with tempfile.TemporaryDirectory(prefix="rowlock-test-", dir=_MEMORY) as place:
            yield f"sqlite:///{place}/jobs.db"
    else:
        yield f"sqlite:///{places.mktemp('rowlock')}/jobs.db"


def named_app(spec: str) -> App:
    """The app that `module:app` names, or else ROWLOCK_APP; a new one if neither does."""
    spec = spec or os.environ.get(APP_VARIABLE, "")
    if not spec:
        return App(_NOWHERE)
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise ValueError(f"rowlock_app must be of the form module:app, not {spec!r}")
    app = getattr(import_module(module), attribute)
    if not isinstance(app, App):
        raise TypeError(f"{spec} is not a rowlock.App but {app!r}")
    return app

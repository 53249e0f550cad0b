"""Load the corpus: `python -m tests.contrib.celery_corpus celery|shim`, and print the outcome.

The only change for the shim is the name in the imports.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import types
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGE = "tests.contrib.celery_corpus"
IMPORT = re.compile(r"^(?P<indent>[ \t]*)(?P<how>from|import) celery\b", re.MULTILINE)


def changed(text: str, *, is_shim: bool) -> str:
    """The text with the imports of the shim: the only edit."""
    if not is_shim:
        return text

    def edit(found: re.Match[str]) -> str:
        named = " as celery" if found["how"] == "import" else ""
        return f"{found['indent']}{found['how']} rowlock.contrib.celery{named}"

    return IMPORT.sub(edit, text)


class Finder(MetaPathFinder, Loader):
    """Imports the modules of the corpus with that change."""

    def __init__(self, *, is_shim: bool) -> None:
        self._is_shim = is_shim

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(f"{PACKAGE}.") or name.endswith("__main__"):
            return None
        place = HERE.joinpath(*name.removeprefix(f"{PACKAGE}.").split("."))
        if place.is_dir():
            return spec_from_loader(name, self, is_package=True)
        return spec_from_loader(name, self) if place.with_suffix(".py").exists() else None

    def exec_module(self, module: types.ModuleType) -> None:
        place = HERE.joinpath(*module.__name__.removeprefix(f"{PACKAGE}.").split("."))
        if place.is_dir():
            module.__path__ = [str(place)]
            return
        text = changed(place.with_suffix(".py").read_text("utf-8"), is_shim=self._is_shim)
        exec(compile(text, str(place), "exec"), module.__dict__)


def try_declarations(*, is_shim: bool) -> dict[str, str]:
    """Each statement after the mark is a declaration. Those that need others come after them."""
    text = changed((HERE / "declarations.py").read_text("utf-8"), is_shim=is_shim)
    first = text[: text.index("# Declarations")].count("\n")
    space: dict[str, Any] = {"__name__": "declarations"}
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        code = compile(ast.Module([node], []), "declarations.py", "exec", dont_inherit=True)
        # A class becomes a task by the statement after it.
        if node.lineno <= first or isinstance(node, ast.ClassDef):
            exec(code, space)
        else:
            name = getattr(node, "name", None) or ast.unparse(node).partition(" ")[0]
            found[name] = outcome(partial(exec, code, space))
    space["app"].load_tasks() if is_shim else space["app"].finalize()
    return found


def try_apps(*, is_shim: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted((HERE / "apps").glob("*.py")):
        if path.stem not in ("__init__", "more_tasks"):
            found[path.stem] = outcome(partial(load_app, path.stem, is_shim=is_shim))
    return found


def load_app(name: str, *, is_shim: bool) -> None:
    """As a worker does it."""
    from importlib import import_module

    app = import_module(f"{PACKAGE}.apps.{name}").app
    if is_shim:
        app.load_tasks()
    else:
        app.loader.import_default_modules()
        app.finalize()


def outcome(call: Any) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001  # printed
        return f"{type(error).__name__}: {error}"
    return "loads"


if __name__ == "__main__":
    IS_SHIM = sys.argv[1] == "shim"
    sys.meta_path.insert(0, Finder(is_shim=IS_SHIM))
    apps, tasks = try_apps(is_shim=IS_SHIM), try_declarations(is_shim=IS_SHIM)
    print(json.dumps({"apps": apps, "tasks": tasks}))  # noqa: T201  # read by the test

"""The source tree as the house tests read it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rowlock"
# Of Python and of the dashboard's sources alike.
FILE_LINES_MAX = 800
LINE_CHARACTERS_MAX = 100


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the package: `name` is how it is imported."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        """Where to look, as editors understand it."""
        return str(self.path.relative_to(ROOT))


@cache
def read_modules() -> tuple[Module, ...]:
    """Read and parse every module of the package, in one order."""
    modules = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules.append(Module(name=name, path=path, text=text, tree=ast.parse(text, str(path))))
    assert modules, f"no source in {PACKAGE}"
    return tuple(modules)

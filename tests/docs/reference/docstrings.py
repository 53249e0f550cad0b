"""What the code says of itself: docstrings in parts, and the texts below attributes."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any

_PART = re.compile(r"^(Args|Raises|Returns|Example):$")
_ENTRY = re.compile(r"^(?P<name>\*{0,2}[\w.]+): (?P<text>.*)$")


@dataclass(slots=True)
class Docstring:
    """A docstring: its prose, what it says of arguments and errors, and its example."""

    prose: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    answer: str = ""
    example: str = ""

    @property
    def promise(self) -> str:
        """Its first paragraph."""
        return self.prose.partition("\n\n")[0]


def docstring_of(documented: Any) -> Docstring:
    """The docstring of a class or a function itself, not of what it inherits from."""
    text = documented.__doc__
    assert text, f"{documented!r} has no docstring"
    return read_docstring(text)


def read_docstring(text: str) -> Docstring:
    """A docstring in its parts."""
    parts: dict[str, list[str]] = {"": []}
    part = ""
    for line in inspect.cleandoc(text).splitlines():
        if named := _PART.match(line):
            part = named[1]
            parts[part] = []
        elif part and line and not line.startswith(" "):
            part = ""
            parts[part].append(line)
        else:
            parts[part].append(line)
    told = {name: textwrap.dedent("\n".join(lines)).strip() for name, lines in parts.items()}
    return Docstring(
        prose=told[""],
        arguments=_entries(told.get("Args", "")),
        errors=_entries(told.get("Raises", "")),
        answer=told.get("Returns", ""),
        example=told.get("Example", ""),
    )


def _entries(text: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if found := _ENTRY.match(line):
            name = found["name"]
            entries[name] = found["text"]
        elif line.strip():
            entries[name] += f" {line.strip()}"
    return entries


@cache
def attribute_texts(owner: type | ModuleType) -> dict[str, str]:
    """What stands as a string below attributes of a module, or of a class and its bases."""
    if isinstance(owner, ModuleType):
        return _texts_below(ast.parse(inspect.getsource(owner)).body)
    texts: dict[str, str] = {}
    for kind in reversed(owner.__mro__):
        if kind.__module__.startswith("rowlock"):
            texts |= _texts_below(class_tree(kind).body)
    return texts


@cache
def class_tree(kind: type) -> ast.ClassDef:
    """The source of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return tree


def _texts_below(body: list[ast.stmt]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for statement, below in pairwise(body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = text
            case _:
                pass
    return texts

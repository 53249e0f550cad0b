"""The stub of `rowlock.store.methods`, from the functions that make the ops of its verbs.

python -m tests.typing.stubs
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from rowlock.store import methods
from rowlock.store.methods import QueueVerbs, StoreVerbs, Verb

PATH = Path(methods.__file__).with_suffix(".pyi")
_HEAD = '''"""Generated from the functions in `ops`: `python -m tests.typing.stubs`."""'''


def rendered() -> str:
    """The text of the stub."""
    imports: set[tuple[str, str]] = set()
    classes = [_class_text(each, imports) for each in (QueueVerbs, StoreVerbs)]
    lines = [f"from {module} import {name}" for module, name in sorted(imports)]
    text = "\n".join([_HEAD, "import builtins", *lines, _VERB, *classes])
    return _formatted(text)


# Used by tests only.
_VERB = """
class Verb:
    op: Callable[..., Op[Any]]
    is_async: bool
    then: Callable[[Any], None] | None
    is_local: bool
    name: str
"""


def _class_text(kind: type, imports: set[tuple[str, str]]) -> str:
    imports |= {("collections.abc", "Callable"), ("typing", "Any"), ("rowlock.store.steps", "Op")}
    bases = [base.__name__ for base in kind.__bases__ if base is not object]
    members = [each for each in vars(kind).values() if isinstance(each, Verb)]
    return "\n".join(
        [
            f"class {kind.__name__}({', '.join(bases)}):",
            f'    """{kind.__doc__}"""',
            *(textwrap.indent(_method_text(each, imports), "    ") for each in members),
        ]
    )


def signature_of(verb: Verb) -> inspect.Signature:
    """What the method takes, `self` included, and what it returns; types are texts."""
    signature = inspect.signature(verb.op)
    taken = list(signature.parameters.values())[1 if verb.is_local else 0 :]
    returned: str = signature.return_annotation
    assert returned.startswith("Op["), returned
    return signature.replace(
        parameters=[inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *taken],
        return_annotation=(
            "None" if verb.then is not None else returned.removeprefix("Op[").removesuffix("]")
        ),
    )


def _method_text(verb: Verb, imports: set[tuple[str, str]]) -> str:
    signature, module = signature_of(verb), inspect.getmodule(verb.op)

    def bare(text: Any) -> Any:
        return text if text is inspect.Parameter.empty else _type(text, module, imports)

    shown = signature.replace(
        parameters=[
            each.replace(annotation=bare(each.annotation)) for each in signature.parameters.values()
        ],
        return_annotation=bare(signature.return_annotation),
    )
    word = "async def" if verb.is_async else "def"
    text = f"As `{verb.name[1:]}`." if verb.is_async else inspect.cleandoc(verb.op.__doc__ or "")
    body = textwrap.indent(f'"""{text}{_ending(text)}"""', "    ")
    return f"{word} {verb.name}{shown}:\n{body}\n"


def _ending(text: str) -> str:
    return "\n" if "\n" in text else ""


class _Bare:
    """An annotation whose text is not put in quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _type(annotation: str, module: Any, imports: set[tuple[str, str]]) -> _Bare:
    tree = ast.parse(annotation, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            imports.add((getattr(module, node.id).__module__, node.id))
    # One of the methods is called `list`.
    return _Bare(ast.unparse(_Builtins().visit(tree)))


class _Builtins(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("builtins.list") if node.id == "list" else node


def _formatted(text: str) -> str:
    """As the linter wants it."""
    name = str(PATH)
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "-q", "--fix-only", "--select", "I"], ["format", "-q"]):
        done = subprocess.run(
            [*ruff, *command, "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    PATH.write_text(rendered(), "utf-8")

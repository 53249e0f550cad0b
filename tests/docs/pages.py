"""The documentation as the tests see it: pages, and the fenced blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"```(\w*)(?: title=\"([^\"]+)\")?")
_APART = re.compile(r"<!-- run apart: .+ -->")
_BESIDE = re.compile(r"<!-- run beside: .+ -->")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where its first line stands, and what it is for.

    `title` is the name of a file that it is the content of. `output` is the text block directly
    after it: what it prints. One that is `apart` runs in a process of its own. Commands of one that
    is `beside` go on while the blocks below it run.
    """

    language: str
    title: str | None
    text: str
    line: int
    is_apart: bool = False
    is_beside: bool = False
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path
    text: str
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    @property
    def needs_postgres(self) -> bool:
        return any("ROWLOCK_DATABASE_URL" in block.text for block in self.of("python"))

    def of(self, language: str) -> list[Block]:
        return [block for block in self.blocks if block.language == language]


@cache
def read_pages() -> tuple[Page, ...]:
    """Read the README and every page below docs/."""
    return tuple(read_page(path) for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))])


def read_page(path: Path) -> Page:
    text = path.read_text("utf-8")
    return Page(path, text, tuple(with_outputs(read_blocks(text), text.splitlines())))


def read_blocks(text: str) -> list[Block]:
    """Read the fenced blocks in order; a fence that is never closed is an error."""
    blocks: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        if opened := _FENCE.fullmatch(lines[number]):
            end = lines.index("```", number + 1)
            body = "\n".join(lines[number + 1 : end]) + "\n"
            before = [line for line in lines[:number] if line]
            is_apart = bool(before and _APART.fullmatch(before[-1]))
            is_beside = bool(before and _BESIDE.fullmatch(before[-1]))
            blocks.append(Block(opened[1], opened[2], body, number + 2, is_apart, is_beside))
            number = end
        number += 1
    return blocks


def with_outputs(blocks: list[Block], lines: list[str]) -> list[Block]:
    """Give each block of Python the text block that follows it, if only blank lines lie between."""
    paired: list[Block] = []
    for block, after in zip_longest(blocks, blocks[1:]):
        end = block.line + block.text.count("\n")
        is_output = after and after.language == "text" and not any(lines[end : after.line - 2])
        output = after.text if after and is_output and block.language == "python" else None
        paired.append(replace(block, output=output))
    return paired

"""The JSON text of requests: weighed, split and checked before anything is made of it.

1. A call of msgspec holds the interpreter until it returns, so each call gets a bounded text. The
   items of a list are found one after the other, and decoded one by one.
2. What a value would take is judged by its text: by its weight, and by how many lists and objects
   are in it. Decoding a megabyte of `[],` takes twenty megabytes, and 60 of them three gigabytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from rowlock import codec, config

_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_TEXT: Final = msgspec.json.Decoder(str)
# Whitespace is skipped in parts: a body may have sixty megabytes of it.
_SPACES: Final = re.compile(rb"[ \t\n\r]*")
_SPACES_MAX: Final = 2**20
# Each alternative begins differently, so that nothing is read twice.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{},:]', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_TRAILING: Final = re.compile(r"trailing characters \(byte (\d+)\)")


class TooLong(Exception):
    """A part of the text is longer than any part may be. `what` names it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class DuplicateKey(ValueError):
    """An object has the same key twice."""

    def __init__(self, key: str) -> None:
        shown = codec.clean_text(key, bytes_max=128)
        super().__init__(f"the key {shown!r} is given twice in one object")


def excess(raw: msgspec.Raw, *, bytes_max: int) -> str | None:
    """Why a value is too large to be decoded, or None if it isn't."""
    text = bytes(raw)
    if len(text) > bytes_max and (size := weight(text)) > bytes_max:
        hint = "store large values in a file or a table, and pass a reference"
        return f"{size} bytes, at most {bytes_max} are allowed; {hint}"
    if _containers(text) > config.HTTP_CONTAINERS_MAX:
        return f"holds more than {config.HTTP_CONTAINERS_MAX:,} lists and objects"
    return None


def weight(text: bytes) -> int:
    """The fewest bytes that a value may take once it is stored, without spaces and escapes."""
    spaces = sum(text.count(each) for each in (b" ", b"\t", b"\n", b"\r"))
    codes = text.count(b"\\u")
    return len(text) - spaces - 5 * codes - (text.count(b"\\") - codes)


def _containers(text: bytes) -> int:
    """How many lists and objects a text has, exactly if they may be too many."""
    if len(text) <= config.HTTP_CONTAINERS_MAX:
        return 0
    number = text.count(b"[") + text.count(b"{")
    if number <= config.HTTP_CONTAINERS_MAX:
        return number
    bare = _STRING.sub(b"", text)
    return bare.count(b"[") + bare.count(b"{")


def check_keys(raw: bytes | msgspec.Raw | memoryview) -> None:
    """Raise `DuplicateKey` if an object of this valid text has a key twice."""
    text = bytes(raw)
    if text.count(b":") > 1:
        _KEYS.decode(text.decode())


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKey(key)
            seen.add(key)


def _nothing(_: str) -> None:
    return None


_KEYS: Final = json.JSONDecoder(
    strict=False, object_pairs_hook=_check_pairs, parse_int=_nothing, parse_float=_nothing
)


def lone_surrogate(text: bytes) -> int | None:
    """Where a text has half of a surrogate pair, such as `\\ud800` alone. None if nowhere."""
    high_end = -1
    high = 0
    for found in _ESCAPE.finditer(text):
        code = int(found[1], 16) if found[1] else 0
        is_low = 0xDC00 <= code < 0xE000
        if high_end >= 0 and not (is_low and found.start() == high_end):
            return high
        if is_low and high_end < 0:
            return found.start()
        is_high = 0xD800 <= code < 0xDC00
        high, high_end = (found.start(), found.end()) if is_high else (0, -1)
    return high if high_end >= 0 else None


def check_item(raw: bytes | msgspec.Raw | memoryview) -> None:
    """Raise `DuplicateKey` for a document, apart from its large parts.

    These are checked when they are decoded: they may be larger than they may be decoded.
    """
    text = memoryview(raw)
    if len(text) <= config.HTTP_INLINE_BYTES:
        check_keys(text)
        return
    reader = Reader(text)
    if reader.peek() == "{":
        for key in reader.names():
            value = reader.value(key)
            if len(value) <= config.HTTP_INLINE_BYTES:
                check_keys(value)


class Reader:
    """Reads a text from its beginning to its end, without making anything of it.

    Raises:
        msgspec.DecodeError: The text is not JSON. Values that are only skipped may be found to be
            invalid when they are decoded.
        TooLong: A value that is skipped is longer than `config.HTTP_JOB_BYTES_MAX`.
        DuplicateKey: An object whose keys are read has one of them twice.
    """

    def __init__(self, text: memoryview) -> None:
        self._text = text
        self._place = 0

    def peek(self) -> str:
        """The next character that is not a space. Empty at the end."""
        while found := _SPACES.match(self._text, self._place, self._place + _SPACES_MAX):
            if found.end() == self._place:
                break
            self._place = found.end()
        return chr(self._text[self._place]) if self._place < len(self._text) else ""

    def names(self) -> Iterator[str]:
        """The keys of an object. Read the value of each before the next key."""
        seen: set[str] = set()
        for _ in self._parts("{", "}"):
            key = _TEXT.decode(self.value("key"))
            if key in seen:
                raise DuplicateKey(key)
            seen.add(key)
            self._take(":")
            yield key

    def items(self, what: str) -> Iterator[memoryview]:
        """The items of a list, each as its text. `what` names the list."""
        for number, _ in enumerate(self._parts("[", "]")):
            yield self.value(f"{what}[{number}]")

    def value(self, what: str) -> memoryview:
        """The text of the next value, whatever it is."""
        self.peek()
        begin, rest = self._place, len(self._text) - self._place
        part = self._text[begin : begin + config.HTTP_JOB_BYTES_MAX + 1]
        try:
            end = _length(part)
        except msgspec.DecodeError as error:
            if len(part) < rest and "truncated" in str(error):
                raise TooLong(what) from None
            raise
        if end > config.HTTP_JOB_BYTES_MAX:
            raise TooLong(what)
        self._place = begin + end
        return part[:end]

    def finish(self) -> None:
        """Check that nothing follows."""
        if self.peek():
            raise msgspec.DecodeError(f"JSON is malformed: trailing characters {self._shown()}")

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        if self.peek() == closing:
            self._take(closing)
            return
        while True:
            yield
            if self.peek() == closing:
                self._take(closing)
                return
            self._take(",")

    def _take(self, character: str) -> None:
        found = self.peek()
        if not found:
            raise msgspec.DecodeError("Input data was truncated")
        if found != character:
            raise msgspec.DecodeError(f"JSON is malformed: expected '{character}' {self._shown()}")
        self._place += 1

    def _shown(self) -> str:
        return f"(byte {self._place})"


def _length(text: memoryview) -> int:
    """The length of the value that a text begins with, with the spaces behind it.

    msgspec reads a value much faster than Python could. That something follows is an error to it,
    which says where. The slower way is for versions of it that say that differently.
    """
    if not _TRAILING_IS_KNOWN:
        return _scanned_length(text)
    try:
        _RAW.decode(text)
    except msgspec.DecodeError as error:
        found = _TRAILING.search(str(error))
        if found is None:
            raise
        return int(found[1]) - 1
    return len(text)


def _scanned_length(text: memoryview) -> int:
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found[0][:1]
        if token in b"]},:" and depth == 0:
            return found.start()
        depth += (token in b"[{") - (token in b"]}")
    if depth or not text:
        raise msgspec.DecodeError("Input data was truncated")
    return len(text)


def _is_trailing_known() -> bool:
    try:
        _RAW.decode(b"[1] ,")
    except msgspec.DecodeError as error:
        found = _TRAILING.search(str(error))
        return found is not None and found[1] == "5"
    return False


_TRAILING_IS_KNOWN: Final = _is_trailing_known()

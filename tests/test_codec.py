"""What the codec stores reads back exactly, and what it can't store it refuses by name."""

from __future__ import annotations

import json
import math
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock import codec
from rowlock.config import (
    ERROR_BYTES_MAX,
    FIELD_ERRORS_MAX,
    INTEGER_DIGITS_MAX,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_DEPTH_MAX,
)
from rowlock.errors import OptionInvalid, PayloadInvalid

# Made from numbers, because building the table of all characters takes a second.
CHARACTERS = st.sampled_from('ab1 \0\n"\\{[é\ud800\udfff') | st.integers(0, sys.maxunicode).map(chr)
ANY_TEXT = st.text(CHARACTERS)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


class Colour(Enum):
    RED = "red"


@dataclass
class Item:
    price: float
    name: str = ""


class Shouted(str):
    __slots__ = ()


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


def refused(payload: Any) -> list[str]:
    """The paths of the fields that are refused."""
    with pytest.raises(PayloadInvalid) as caught:
        codec.encode_payload("kind", payload)
    assert caught.value.kind == "kind"
    return [error.field for error in caught.value.errors]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, part in value.items():
                yield from texts_in(key)
                yield from texts_in(part)
        case list():
            for part in value:
                yield from texts_in(part)


def floats_in(value: object) -> Iterator[float]:
    match value:
        case float():
            yield value
        case dict() | list():
            for part in value.values() if isinstance(value, dict) else value:
                yield from floats_in(part)


def is_storable(value: object) -> bool:
    texts = all(
        "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
        for text in texts_in(value)
    )
    return texts and all(math.isfinite(number) for number in floats_in(value))


@given(st.dictionaries(ANY_TEXT, VALUES, max_size=5))
def test_any_json_round_trips_or_is_refused(payload):
    """A payload reads back exactly, types included, or is refused because of a bad value."""
    try:
        text = codec.encode_payload("kind", payload)
    except PayloadInvalid:
        assert not is_storable(payload)
    else:
        assert is_storable(payload)
        assert repr(payload) == repr(codec.decode(text))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_round_trip(number):
    """Every finite float comes back as the same bits, -0.0 included."""
    assert repr(number) == repr(codec.decode(codec.encode_payload("kind", {"n": number}))["n"])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_integer_comes_back(sign):
    """An integer of 4,300 digits comes back exactly, one digit more is refused."""
    largest = sign * (10**INTEGER_DIGITS_MAX - 1)
    text = codec.encode_payload("kind", {"n": largest})

    assert largest == codec.decode(text)["n"]
    assert refused({"n": largest + sign}) == ["n"]
    assert codec.decode(f"[{largest}, 1.5]") == [largest, 1.5]
    with pytest.raises(ValueError, match="out of range"):
        codec.decode(f"[{largest}, 1e999]")


def test_a_lifted_integer_limit_changes_nothing():
    """An interpreter told to print longer integers still refuses them in a payload."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        fields = refused({"n": 10**INTEGER_DIGITS_MAX})
    finally:
        sys.set_int_max_str_digits(limit)

    assert fields == ["n"]


def test_text_is_compact_and_unescaped():
    """The text is UTF-8 content without spaces or ASCII escapes."""
    assert codec.encode_payload("kind", {"a": ["é", None]}) == '{"a":["é",null]}'


def test_every_bad_field_is_named():
    """One error lists each bad value and key by its path."""
    payload = {
        "nul": "a\0b",
        "items": [1, {"price": math.nan}, {"price": math.inf, "x\0": 1, "a b": object()}],
        "half": {"deep": ["\ud800"]},
        "long": 10**5000,
        "item": Item(-math.inf, "\0"),
        "fine": "\\u0000",
    }

    assert refused(payload) == [
        "nul",
        "items[1].price",
        'items[2]["x\ufffd"]',
        "items[2].price",
        'items[2]["a b"]',
        "half.deep[0]",
        "long",
        "item.price",
        "item.name",
    ]


@pytest.mark.parametrize("key", [None, True, (1, 2), math.nan])
def test_keys_that_json_lacks_are_refused(key):
    """A key that is neither text nor a number is refused."""
    assert refused({"a": {key: 1}}) == [f"a.{key}" if str(key).isidentifier() else f'a["{key}"]']


def test_keys_that_become_the_same_text_are_refused():
    """A number and its text can't both be keys, since one would be lost."""
    assert refused({"a": {1: "one", "1": "uno"}}) == ['a["1"]']


def test_numbers_as_keys_become_text():
    """A number as a key is stored as its text."""
    assert codec.encode_payload("kind", {"a": {1: 2}}) == '{"a":{"1":2}}'


def test_depth_is_bounded():
    """64 levels are stored, 65 are refused, as deep below as they may be hidden."""
    payload = {"a": nested(PAYLOAD_DEPTH_MAX - 1)}
    text = codec.encode_payload("kind", payload)

    assert payload == codec.decode(text)
    assert refused({"a": nested(PAYLOAD_DEPTH_MAX)}) == [f"a{'[0]' * 63}"]
    assert refused({"a": nested(100_000), "b": math.nan}) == [f"a{'[0]' * 63}", "b"]


def test_wide_is_not_deep():
    """Many small lists side by side are no nesting."""
    payload = {"rows": [[n, {"n": n}] for n in range(1000)]}

    assert payload == codec.decode(codec.encode_payload("kind", payload))


def test_a_value_that_holds_itself_is_refused():
    """A cycle, also a branching one, ends in a refusal and not in an endless walk."""
    knot: list[Any] = []
    knot.extend([knot] * 10)

    assert len(refused({"knot": knot})) == FIELD_ERRORS_MAX + 1


def test_the_list_of_errors_is_bounded():
    """Beyond a thousand bad fields the last entry says that there are more."""
    fields = refused({"a": [math.nan] * 5000})

    assert (len(fields), fields[-1]) == (FIELD_ERRORS_MAX + 1, "payload")


def test_size_is_bounded():
    """A payload that is too large names the field that is, or else itself."""
    half = "x" * (PAYLOAD_BYTES_MAX // 2)

    assert refused({"a": 1, "b": "x" * PAYLOAD_BYTES_MAX}) == ["b"]
    assert refused({"a": half, "b": half}) == ["payload"]
    assert codec.encode_payload("kind", {"a": "x" * (PAYLOAD_BYTES_MAX - 8)})


@pytest.mark.parametrize("raw", [b"{", b'"\\u0000"', b"NaN"])
def test_raw_json_is_no_way_in(raw):
    """Text that was encoded elsewhere is not trusted."""
    assert refused({"a": msgspec.Raw(raw)}) == ["a"]


def test_known_types_are_written():
    """Dates, UUIDs, Decimals, enums, dataclasses, other mappings and subclasses are written."""
    number = uuid.UUID(int=7)
    payload = MappingProxyType(
        {
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "id": number,
            "price": Decimal("1.50"),
            "colour": Colour.RED,
            "item": Item(1.0, "x"),
            "map": MappingProxyType({"a": (1, 2)}),
            "text": Shouted("hey"),
        }
    )

    assert json.loads(codec.encode_payload("kind", payload)) == {
        "at": "2026-01-02T00:00:00Z",
        "id": str(number),
        "price": "1.50",
        "colour": "red",
        "item": {"price": 1.0, "name": "x"},
        "map": {"a": [1, 2]},
        "text": "hey",
    }


def test_options_are_refused_as_options():
    """Meta and tags raise OptionInvalid, with the option's name and the bad part's path."""
    with pytest.raises(OptionInvalid, match=r"^meta: a\[0\]: holds a NUL") as caught:
        codec.encode_json({"a": ["\0"]}, what="meta", bytes_max=100)
    with pytest.raises(OptionInvalid, match=r"^tags: value: 104 bytes, at most 100"):
        codec.encode_json(["x" * 100], what="tags", bytes_max=100)

    assert caught.value.option == "meta"
    assert codec.encode_json(["a"], what="tags", bytes_max=100) == '["a"]'


def test_results_are_text_or_a_problem():
    """A result is encoded, or the reason is told; None is no result."""
    assert codec.encode_result(None) == (None, None)
    assert codec.encode_result(Item(1.0)) == ('{"price":1.0,"name":""}', None)
    assert codec.encode_result(math.nan) == (None, "result: nan is not a JSON number")
    assert codec.encode_result({"a": object()}) == (None, "a: object can't be stored as JSON")


def test_results_never_raise():
    """A result whose own code raises, or that is too large, only has a problem."""

    class Hostile:
        def model_dump(self, **options: object) -> object:
            raise KeyError("\0")

    for value in (Hostile(), "x" * PAYLOAD_BYTES_MAX, nested(100_000), {"\ud800": Hostile}):
        text, problem = codec.encode_result(value)

        assert text is None
        assert problem


@pytest.mark.parametrize(
    "text", ["", "{", "nope", "NaN", "1e999", '"\ud800"', "[" * 100_000, "1 2"]
)
def test_garbage_is_a_value_error(text):
    """What is no JSON raises ValueError, never RecursionError or an error of msgspec's."""
    with pytest.raises(ValueError, match=r"^not readable as JSON: "):
        codec.decode(text)


@given(ANY_TEXT, st.integers(0, 300))
def test_clean_text_is_storable_and_bounded(text, bytes_max):
    """Any text becomes UTF-8 without NUL, within its bound."""
    encoded = codec.clean_text(text * 7, bytes_max=bytes_max).encode()

    assert b"\0" not in encoded
    assert len(encoded) <= bytes_max


@given(ANY_TEXT.filter(is_storable))
def test_clean_text_leaves_good_text_alone(text):
    """Text that fits and is clean comes back as it is."""
    assert codec.clean_text(text, bytes_max=len(text.encode())) == text


def test_clean_text_replaces_one_for_one():
    """Each NUL and each lone surrogate becomes one replacement character."""
    assert codec.clean_text("a\0b\udfffé", bytes_max=100) == "a\ufffdb\ufffdé"


def test_clean_text_keeps_head_and_tail():
    """A long text keeps its beginning and its end, and says how many characters are missing."""
    cleaned = codec.clean_text("start" + "é" * 1_000_000 + "end", bytes_max=1000)
    head, note, tail = cleaned.split("\n")

    assert head.startswith("start")
    assert tail.endswith("end")
    assert note == f"[... {1_000_008 - len(head) - len(tail)} characters cut ...]"
    assert len(tail) > 2 * len(head)


def test_an_error_is_recorded():
    """Type, message and traceback are kept, local variables are not."""

    def fail(password: str) -> None:
        raise OptionInvalid("delay", "bad\0")

    with pytest.raises(OptionInvalid) as caught:
        fail("hunter" + "2")
    record = codec.error_record(caught.value)

    assert record.type == "rowlock.errors.OptionInvalid"
    assert record.message == "delay: bad\ufffd"
    assert "in fail\n" in record.traceback
    assert "hunter2" not in record.traceback


def test_a_text_is_an_error_too():
    """An error given as text is its message."""
    assert codec.ErrorText("Error", "boom", "") == codec.error_record("boom")


@pytest.mark.parametrize(
    "error", [Mute(), ValueError("é" * 10**6), "x" * 10**6, ValueError("\ud800")]
)
def test_any_error_can_be_recorded(error):
    """Errors that raise when read, or are huge, are recorded within the bound."""
    record = codec.error_record(error)
    whole = (record.type + record.message + record.traceback).encode()

    assert record.type
    assert record.message
    assert len(whole) <= ERROR_BYTES_MAX


def test_endless_recursion_is_recorded():
    """A RecursionError keeps its innermost frames only."""

    def forever(n: int) -> int:
        return forever(n + 1) + 1

    with pytest.raises(RecursionError) as caught:
        forever(0)
    record = codec.error_record(caught.value)

    assert record.type == "RecursionError"
    assert "forever" in record.traceback

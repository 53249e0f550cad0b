"""JSON text, split and weighed before it is decoded."""

from __future__ import annotations

import json

import msgspec
import pytest

from rowlock import config
from rowlock.server import json_text
from rowlock.server.json_text import DuplicateKey, Reader, TooLong, check_keys, excess, weight

VALUES = [1, -2.5e3, "a", 'a"]},{\\', "", None, True, [], {}, [1, [2]], {"a": {"b": [1, "]"]}}]


@pytest.fixture(params=["by msgspec", "by tokens"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the ends of values by msgspec's errors, or without its help."""
    assert json_text._TRAILING_IS_KNOWN
    if request.param == "by tokens":
        monkeypatch.setattr(json_text, "_TRAILING_IS_KNOWN", False)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_is_split_into_the_texts_of_its_items(indent):
    """Whatever is in them, and around them."""
    text = memoryview(f" {json.dumps(VALUES, indent=indent)} ".encode())
    reader = Reader(text)
    found = [json.loads(bytes(item)) for item in reader.items("values")]
    reader.finish()

    assert found == VALUES


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("indent", [None, 2])
def test_an_object_is_split_into_its_names_and_values(indent):
    """In their order."""
    wanted = {f"name {number}: [": value for number, value in enumerate(VALUES)}
    reader = Reader(memoryview(json.dumps(wanted, indent=indent).encode()))
    found = {name: json.loads(bytes(reader.value(name))) for name in reader.names()}
    reader.finish()

    assert found == wanted


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    "text", ["", "[", "[1", "[1,", "[1 2]", "[,]", "[1]]", "[1],", "{}", "1", '["a]', "[[1]", "[1}"]
)
def test_what_is_no_list_is_refused(text):
    """By the split, or when the parts are decoded."""

    def read() -> None:
        reader = Reader(memoryview(text.encode()))
        for item in reader.items("values"):
            msgspec.json.decode(item)
        reader.finish()

    with pytest.raises(msgspec.DecodeError):
        read()


@pytest.mark.usefixtures("either_way")
def test_a_long_part_is_not_read_to_its_end(monkeypatch):
    """It is named, wherever its end is."""
    monkeypatch.setattr(config, "HTTP_JOB_BYTES_MAX", 10)
    for long in ('"123456789"', "[0,0,0,0,0,0]", "12345678901", '{"a": [[[[['):
        with pytest.raises(TooLong) as caught:
            list(Reader(memoryview(f"[1, {long}, 2]".encode())).items("jobs"))
        assert caught.value.what == "jobs[1]"
    fitting = list(Reader(memoryview(b'[1,"12345678",2]')).items("jobs"))

    assert [bytes(each) for each in fitting] == [b"1", b'"12345678"', b"2"]


def test_keys_may_repeat_only_in_different_objects():
    """At any depth, and however they are written."""
    check_keys(b'[{"a": {"a": 1}}, {"a": "a:a:a", "b": [{"a": 1}]}]')
    for twice in (b'{"a": 1, "a": 1}', b'[{"b": {"a": 1, "\\u0061": 2}}]'):
        with pytest.raises(DuplicateKey, match=r"the key 'a' is given twice"):
            check_keys(twice)


def test_the_weight_is_never_more_than_what_is_stored():
    """So nothing is refused for how it is written."""
    value = {"a": [" x ", "\u00e9\U0001f600\n\\"], "b": {"c": 1}}
    stored = len(msgspec.json.encode(value))

    assert weight(json.dumps(value, indent=4).encode()) <= stored
    assert weight(json.dumps(value, ensure_ascii=False).encode()) <= stored
    assert excess(msgspec.Raw(b"[" + b" " * 100 + b"]"), bytes_max=10) is None
    assert excess(msgspec.Raw(b'"12345678901"'), bytes_max=10) is not None

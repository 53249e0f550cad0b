"""A task's signature is the schema of its payload."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import typing
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.config import PAYLOAD_BYTES_MAX
from rowlock.errors import OptionInvalid, PayloadInvalid
from rowlock.signature import PayloadSchema

if typing.TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]  # seen by checkers only


class Context:
    """Stands for rowlock.Context."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    price: float
    name: str
    at: datetime | None = None


@dataclass
class SaleItem(Item):
    discount: float = 0.0


class Address(TypedDict):
    street: str
    town: NotRequired[str]


class Point(msgspec.Struct, rename="camel"):
    left_x: int
    top_y: int = 0


def mail(to: str, subject: str, ctx: Context, body: str = "", *, copies: int = 1) -> None:
    """Send a mail."""


def later(node: Node, *, weight: "float") -> Unknown: ...  # noqa: UP037  # quoted on purpose


@dataclass
class Node:
    name: str
    children: list[Node] | None = None


def schema_of(function: Any) -> PayloadSchema:
    return PayloadSchema(function, "kind", Context)


def refusal(call: Any) -> list[tuple[str, str]]:
    """What a refused payload's errors say, by field."""
    with pytest.raises(PayloadInvalid) as caught:
        call()
    return [(error.field, error.message) for error in caught.value.errors]


def refused(function: Any, *args: object, **kwargs: object) -> list[str]:
    return [field for field, _ in refusal(lambda: schema_of(function).encode(args, kwargs))]


def round_trip(function: Any, *args: object, **kwargs: object) -> dict[str, Any]:
    schema = schema_of(function)
    return schema.arguments(schema.encode(args, kwargs))


def test_a_call_becomes_text():
    """Positional and keyword arguments are bound as in a call; defaults are not written."""
    schema = schema_of(mail)

    assert schema.context_parameter == "ctx"
    assert schema.encode(("a", "b", "c"), {}) == '{"to":"a","subject":"b","body":"c"}'
    assert schema.encode(("a",), {"subject": "b"}) == '{"to":"a","subject":"b"}'
    assert schema.arguments('{"to":"a","subject":"b"}') == {"to": "a", "subject": "b"}


def test_a_mapping_is_validated_alike():
    """Enqueue by name goes through the same checks."""
    schema = schema_of(mail)

    assert schema.validate({"to": "a", "subject": "b"}) == '{"to":"a","subject":"b"}'
    assert refusal(lambda: schema.validate({})) == [("to", "required"), ("subject", "required")]


def test_every_bad_field_is_named():
    """Missing, unexpected and ill-typed fields are told together."""
    errors = refusal(lambda: schema_of(mail).encode((b"a",), {"sbject": "x", "copies": True}))

    assert errors == [
        ("to", "Expected `str`, got `bytes`"),
        ("subject", "required"),
        ("copies", "Expected `int`, got `bool`"),
        ("sbject", "unexpected; did you mean 'subject'?"),
    ]


def test_too_many_and_double_arguments_are_named():
    """What Python would refuse as a call is refused as a payload."""
    assert refused(mail, "a", "b", "c", "d", to="e") == ["to", "payload"]
    assert refused(mail, "a", "b", copies=1.5, ctx=Context()) == ["copies", "ctx"]


def test_nested_faults_are_named_by_path():
    """msgspec stops at the first fault; the refusal names those in lists and objects too."""

    def order(items: list[Item], boxes: dict[str, Point], to: Address, pair: tuple[int, str]): ...

    assert refused(
        order,
        [{"price": "1", "name": "x"}, {"price": 1}, {"price": None, "name": "x"}],
        {"a": {}, "b c": {"leftX": 1, "topY": "2"}},
        {"town": "x"},
        (1, 2),
    ) == [
        "items[0].price",
        "items[1].name",
        "items[2].price",
        "boxes.a.leftX",
        'boxes["b c"].topY',
        "to.street",
        "pair[1]",
    ]


def test_unstorable_and_ill_typed_parts_are_told_together():
    """A NaN in one item doesn't hide another item's fault."""

    def order(items: list[Item]): ...

    assert set(refused(order, [{"price": math.nan, "name": ""}, {"price": 1, "name": 2}])) == {
        "items[0].price",
        "items[1].name",
    }


def test_numbers_are_strict():
    """A bool is no int, an int is a float, NaN is nothing; big integers stay exact."""

    def count(n: int, ratio: float = 1.0): ...

    assert refused(count, True) == ["n"]
    assert refused(count, 1.0) == ["n"]
    assert refused(count, "1") == ["n"]
    assert refused(count, 1, math.nan) == ["ratio"]
    assert round_trip(count, 10**4299, 3) == {"n": 10**4299, "ratio": 3.0}
    assert round_trip(count, -(10**4299), 3) == {"n": -(10**4299), "ratio": 3.0}


def test_text_is_not_made_of_what_is_no_text():
    """A UUID, date or bytes for a `str`, at any depth, is a mistake and not a conversion."""

    def note(text: str = "", lines: tuple[str, ...] = (), **more: str): ...

    assert refused(note, UUID(int=1), ["a", b"b"], more=date(2026, 1, 1)) == [
        "text",
        "lines[1]",
        "more",
    ]


def everything(  # noqa: PLR0917  # one of each
    item: Item,
    items: list[Item],
    address: Address,
    point: Point,
    colour: Colour,
    at: datetime,
    day: date,
    wait: timedelta,
    number: UUID,
    price: Decimal,
    size: Literal["s", "m"],
    either: int | str | None,
    age: Annotated[int, msgspec.Meta(ge=0)],
    content: bytes,
    by_id: dict[int, str],
    unique: set[int],
    free: Any,
): ...


EVERYTHING: dict[str, Any] = {
    "item": Item(1.0, "a", datetime(2026, 1, 1, tzinfo=UTC)),
    "items": [Item(2.0, "b")],
    "address": {"street": "x"},
    "point": Point(1, 2),
    "colour": Colour.BLUE,
    "at": datetime(2026, 1, 1, 12, 30, tzinfo=UTC),
    "day": date(2026, 1, 1),
    "wait": timedelta(seconds=90),
    "number": UUID(int=5),
    "price": Decimal("1.10"),
    "size": "m",
    "either": None,
    "age": 3,
    "content": b"\x00\xff",
    "by_id": {1: "a"},
    "unique": {1, 2},
    "free": {"a": [1]},
}


def test_supported_types_come_back_typed():
    """Each supported type goes in as itself and comes out as itself."""
    assert round_trip(everything, **EVERYTHING) == EVERYTHING


def test_every_field_of_every_type_can_be_refused():
    """Seventeen wrong values are seventeen errors (one parameter takes anything)."""
    wrong = dict.fromkeys(EVERYTHING, 1.5) | {"price": [], "age": -1}

    assert [name for name in EVERYTHING if name != "free"] == refused(everything, **wrong)


def test_a_subclass_may_stand_for_its_base():
    """A richer object is accepted where its base is asked for, and comes back as the base."""

    def order(item: Item): ...

    assert round_trip(order, SaleItem(1.0, "a")) == {"item": Item(1.0, "a")}


def test_an_object_with_bad_content_is_refused():
    """An instance is not trusted for its class: what is in it must fit."""

    def order(item: Item): ...

    assert refused(order, Item("cheap", "a")) == ["item.price"]  # type: ignore[arg-type]  # bad


def test_hints_resolve_late_and_returns_do_not_matter():
    """A hint may name what is defined below; a return type may be for checkers only."""
    node = Node("a", [Node("b")])

    assert round_trip(later, node, weight=1) == {"node": node, "weight": 1.0}
    assert refused(later, {"name": "a", "children": [{}]}, weight="") == [
        "node.children[0].name",
        "weight",
    ]


def test_a_hint_that_can_not_be_resolved_is_named():
    """The refusal names function, parameter and annotation."""

    def lost(a: int, b: Unknown): ...

    schema = schema_of(lost)
    with pytest.raises(OptionInvalid, match=r"lost: annotation 'Unknown' of parameter 'b'"):
        schema.encode((1, 2), {})


def test_a_hint_that_can_not_be_a_payload_is_named():
    """A union that JSON can't tell apart is refused with the parameter's name."""

    def either(which: Item | Node): ...

    with pytest.raises(OptionInvalid, match="parameter 'which' can't be a payload"):
        schema_of(either).encode((1,), {})


def test_parameters_without_names_are_refused_at_once():
    """`*args` and positional-only parameters fail when the task is declared."""

    def star(*args: int): ...
    def slash(a: int, /): ...

    with pytest.raises(OptionInvalid, match=r"'\*args' takes values without names"):
        schema_of(star)
    with pytest.raises(OptionInvalid, match="'a' is positional-only"):
        schema_of(slash)


def test_two_contexts_are_refused():
    """Only one parameter can be the context."""

    def twice(a: Context, b: Context): ...

    with pytest.raises(OptionInvalid, match="more than one context parameter: a, b"):
        _ = schema_of(twice).context_parameter


def test_extra_fields_have_a_type():
    """`**kwargs: T` takes more fields, each of type T, but never the context."""

    def tags(ctx: Context, name: str, **tags: int): ...

    assert round_trip(tags, "a", x=1, y=2) == {"name": "a", "x": 1, "y": 2}
    assert refused(tags, "a", x="1", ctx=1) == ["x", "ctx"]


def test_unannotated_parameters_take_anything():
    """No hint is no restriction, as long as JSON holds it as it is."""

    def free(a, b=None): ...

    assert round_trip(free, [1, "x"], {}) == {"a": [1, "x"], "b": {}}
    assert refused(free, "\0") == ["a"]


class Level(StrEnum):
    LOW = "low"


class Pair(NamedTuple):
    left: Any
    right: int


@dataclass
class Box:
    content: Any
    labels: dict[str, Any] | None = None


CHANGED: dict[str, Any] = {
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "date": date(2026, 1, 1),
    "time": time(12, 30),
    "timedelta": timedelta(seconds=90),
    "uuid": UUID(int=5),
    "decimal": Decimal("1.10"),
    "bytes": b"abc",
    "bytearray": bytearray(b"abc"),
    "namedtuple": Pair(1, 2),
    "set": {1},
    "frozenset": frozenset({1}),
    "enum": Colour.RED,
    "dataclass": Item(1.0, "a"),
    "struct": Point(1),
    "keys": {1: "a"},
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_would_change_its_type_is_refused(name):
    """Where no annotation names a type, a value comes back as JSON has it, or it is refused."""
    value = CHANGED[name]
    step = '["1"]' if name == "keys" else ""

    def free(a, b: Any = None, **more): ...
    def bare(a: dict, b: list = []): ...  # type: ignore[type-arg]  # noqa: B006  # bare on purpose
    def typed(a: dict[str, Any], b: Box | None = None, c: Any | None = None): ...

    assert refused(free, value, value, more=value) == [f"a{step}", f"b{step}", f"more{step}"]
    assert refused(free, [0, {"x": value}]) == [f"a[1].x{step}"]
    assert refused(bare, {"x": value}, [value]) == [f"a.x{step}", f"b[0]{step}"]
    assert refused(typed, {"x": value}, Box(value, {"x": value}), value) == [
        f"a.x{step}",
        f"b.content{step}",
        f"b.labels.x{step}",
        f"c{step}",
    ]
    assert refused(typed, {}, {"content": value}) == [f"b.content{step}"]


def test_the_refusal_names_the_remedy():
    """The message says what would arrive, and what to write instead."""

    def free(at, by_id=None): ...

    errors = refusal(lambda: schema_of(free).encode((UUID(int=5), {1: "a"}), {}))

    of_value = (
        "a value of type UUID would reach the handler as text; annotate the parameter with its "
        "type, or pass str() of it"
    )
    of_key = (
        "its key, of type int, would reach the handler as text; annotate the parameter with "
        "dict[int, ...], or pass text as the key"
    )
    assert errors == [("at", of_value), ('by_id["1"]', of_key)]


def test_what_reads_back_equal_is_accepted():
    """Subclasses that are equal to what JSON has need no annotation."""

    def free(a, b=None): ...

    ordered = OrderedDict(x=Level.LOW, y=[1, 2.5, None, True])

    assert round_trip(free, ordered, Level.LOW) == {"a": ordered, "b": "low"}
    assert round_trip(free, 1, defaultdict(dict, x={})) == {"a": 1, "b": {"x": {}}}


def test_a_tuple_arrives_as_a_list():
    """Everybody who uses JSON expects that; what is in it is still looked at."""

    def free(a): ...

    assert round_trip(free, (1, ("b", []))) == {"a": [1, ["b", []]]}
    assert refused(free, (1, (UUID(int=5),))) == ["a[1][0]"]


def test_an_annotation_is_the_remedy():
    """The same values come back as they were, once their types are named."""

    def typed(a: dict[int, tuple[int, ...]], b: list[bytes], c: Box | set[UUID]): ...

    assert round_trip(typed, {1: (1, 2)}, (b"x",), {UUID(int=1)}) == {
        "a": {1: (1, 2)},
        "b": [b"x"],
        "c": {UUID(int=1)},
    }


def test_keys_of_another_type_do_not_fit():
    """A number as a key is refused where the annotation says text, and so would change."""

    def typed(a: dict[str, int]): ...

    assert refused(typed, {"x": "1"}) == ["a.x"]
    assert refused(typed, {1: 1}) == ['a["1"]']


def test_partials_methods_and_wrapped_functions_have_signatures():
    """What can be called by name can be a task."""

    class Service:
        def run(self, item: Item, ctx: Context): ...
        def __call__(self, item: Item): ...

    @functools.wraps(mail)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    item = Item(1.0, "a")
    assert round_trip(Service().run, item) == {"item": item}
    assert round_trip(Service(), item) == {"item": item}
    assert round_trip(functools.partial(mail, "a"), subject="b") == {"subject": "b"}
    assert round_trip(wrapped, "a", "b") == {"to": "a", "subject": "b"}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_garbage_is_a_bad_payload(text):
    """A stored text that is no JSON object is named as the payload itself."""
    assert [name for name, _ in refusal(lambda: schema_of(mail).arguments(text))] == ["payload"]


def test_a_payload_that_no_longer_fits_is_refused():
    """A job stored under an older signature says what does not fit."""
    errors = refusal(lambda: schema_of(mail).arguments('{"to":1,"body":"x","old":2}'))

    assert [field for field, _ in errors] == ["to", "subject", "old"]


def test_too_large_a_payload_names_its_field():
    """The bound on the whole is told where the size comes from."""
    assert refused(mail, "a", "x" * PAYLOAD_BYTES_MAX) == ["subject"]


def test_a_type_of_its_own_mind_is_refused_not_raised():
    """A constructor that raises anything becomes a field's error."""

    def order(item: Picky): ...

    assert refusal(lambda: schema_of(order).encode(({"a": 1},), {})) == [("item", "KeyError: 'no'")]


@dataclass
class Picky:
    a: int

    def __post_init__(self) -> None:
        raise KeyError("no")


def test_the_json_schema_says_what_is_taken():
    """The schema is an object without the context, with defaults, closed to other fields."""
    schema = schema_of(mail).json_schema()

    assert schema == {
        "title": "kind",
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "subject": {"type": "string"},
            "body": {"type": "string", "default": ""},
            "copies": {"type": "integer", "default": 1},
        },
        "required": ["to", "subject"],
        "additionalProperties": False,
    }


def test_the_json_schema_of_extras_and_objects():
    """Extra fields and nested types are described, with every reference defined."""

    def order(node: Node, **more: Item): ...

    schema = schema_of(order).json_schema()

    assert schema["additionalProperties"] == {"$ref": "#/$defs/Item"}
    assert set(schema["$defs"]) == {"Node", "Item"}


JSON_FIELDS = st.dictionaries(
    st.sampled_from(["to", "subject", "body", "copies", "ctx", "x"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a\0é") | st.binary(),
)


def is_good(name: str, value: object) -> bool:
    if name == "copies":
        return type(value) is int
    return name in {"to", "subject", "body"} and isinstance(value, str) and "\0" not in value


@given(JSON_FIELDS)
def test_what_is_accepted_can_be_run(fields):
    """Whatever is accepted at enqueue gives the handler the same values; else bad fields."""
    schema = schema_of(mail)
    try:
        text = schema.validate(fields)
    except PayloadInvalid as error:
        bad = {found.field for found in error.errors}
    else:
        bad = set()
        assert schema.arguments(text) == fields
    good = {name for name in fields if is_good(name, fields[name])}

    assert (fields.keys() - good) | ({"to", "subject"} - fields.keys()) == bad


def test_pydantic_models_are_parameters():
    """A model goes in as a model or a dict, and comes out as a model, aliases and all."""

    class Person(pydantic.BaseModel):  # type: ignore[name-defined,misc]  # imported when there
        model_config = pydantic.ConfigDict(strict=True, extra="forbid")
        born: date = pydantic.Field(alias="Born")
        friends: tuple[int, ...] = ()

        @pydantic.computed_field
        def age(self) -> int:
            return 3

    def greet(who, others=(), maybe=None): ...

    greet.__annotations__ = {"who": Person, "others": list[Person], "maybe": Person | None}
    person = Person(Born=date(2000, 1, 1), friends=(1,))
    as_text = {"Born": "2000-01-01", "friends": [1]}

    assert round_trip(greet, as_text, [person]) == {"who": person, "others": [person]}
    assert refused(greet, {"x": 1}, [as_text, as_text | {"friends": ["1"]}], 5) == [
        "who.Born",
        "who.x",
        "others[1].friends[0]",
        "maybe",
    ]
    assert {
        name.lower() for name in schema_of(greet).json_schema()["properties"]["who"]["required"]
    } == {"born"}


def test_pydantic_definitions_are_reachable():
    """The references of a model's schema point into the document that holds it."""
    inner = pydantic.create_model("Inner", x=(int, ...))
    outer = pydantic.create_model("Outer", inner=(inner, ...))

    def take(outer): ...

    take.__annotations__ = {"outer": outer}
    schema = schema_of(take).json_schema()

    assert schema["properties"]["outer"]["properties"]["inner"]["$ref"] == "#/$defs/Outer.Inner"
    assert set(schema["$defs"]) == {"Outer.Inner"}


def test_pydantic_is_never_imported():
    """Importing the module leaves pydantic to those who have it."""
    code = "import sys, rowlock.signature; sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def flat(count: int, rate: float, name: str, is_on: bool = False) -> None: ...


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 1, "rate": 0.5, "name": "a", "is_on": True},
        {"count": 2**70, "rate": -0.0, "name": "ä\u2028\U0001f600"},
        {"count": -(10**4299), "rate": 3, "name": 'null \\ "'},
        {"count": 0, "rate": float("nan"), "name": "a"},
        {"count": 0, "rate": float("-inf"), "name": "a"},
        {"count": 0, "rate": 1.0, "name": "nul \0"},
        {"count": 0, "rate": 1.0, "name": "\ud800"},
        {"count": True, "rate": 1.0, "name": "a"},
        {"count": 1.0, "rate": 1.0, "name": "a"},
        {"count": "1", "rate": 1.0, "name": "a"},
        {"count": 1, "rate": 1.0, "name": b"a"},
        {"count": 1, "rate": 1.0, "name": "a" * 70_000},
        {"count": 1, "rate": 1.0, "name": "a" * 2_000_000},
        {"count": 1, "rate": 1.0},
        {"count": 1, "rate": 1.0, "name": "a", "odd": 1},
    ],
)
def test_plain_values_are_encoded_as_others_are(fields):
    """The short way for numbers and texts gives the same text as the long one, or none."""
    schema = PayloadSchema(flat, "flat", Context)
    text = schema._shape.encoded_flat(fields)
    try:
        careful = schema._encode(fields, ())
    except PayloadInvalid:
        careful = None

    assert text in (None, careful)

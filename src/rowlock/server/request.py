"""Requests: headers, query and body, read within bounds and decoded by type."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from rowlock import codec, config
from rowlock.server.json_text import (
    DuplicateKey,
    Reader,
    TooLong,
    check_item,
    check_keys,
    lone_surrogate,
)
from rowlock.server.problems import FieldProblem, Refusal

_SHOWN_BYTES_MAX: Final = 512
_HALF: Final = (
    "a string has half of a surrogate pair at byte {}, which is not a character; "
    "send both halves, or the character itself"
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_BOOLEANS: Final = {"true": True, "false": False}
# Most tags of earlier answers that are compared.
_TAGS_MAX: Final = 20
_ZERO: Final = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")
_WHERE: Final = re.compile(r" - at (?:`key` in )?`\$([^`]*)`\Z")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)


Headers = Mapping[str, str]


def headers_of(scope: Scope) -> Headers:
    """The headers by lower-case name. If one is repeated, the first counts."""
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(raw)}


def has_body(headers: Headers) -> bool:
    """Whether a body follows."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def takes_gzip(headers: Headers) -> bool:
    """Whether the client takes answers that are compressed by gzip."""
    for each in headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return not _ZERO.fullmatch(weight)
    return False


def has_it(headers: Headers, tag: str) -> bool:
    """Whether the client has the answer with this tag from an earlier request."""
    known = headers.get("if-none-match", "").split(",", _TAGS_MAX)[:_TAGS_MAX]
    return tag in [each.strip() for each in known]


class Inbox:
    """The messages of a request, and whether the last part of its body has arrived."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_over = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._is_over = self._is_over or not message.get("more_body", False)
        return message

    def is_read(self, scope: Scope) -> bool:
        """Whether nothing of the request is left to read."""
        return self._is_over or not has_body(headers_of(scope))

    async def drain(self) -> bool:
        """Read the rest of an answered request, and return whether all of it was read.

        Only a small rest that arrives soon is read. If there is more, the connection has to be
        closed, and a client that is still sending might never see the answer.
        """
        try:
            async with asyncio.timeout(config.HTTP_DRAIN_SECONDS):
                await _read(self, config.HTTP_DRAIN_BYTES_MAX)
        except (TimeoutError, Refusal):
            return False
        return True


class BodyBudget:
    """The bytes of large bodies that a server holds, and whose they are.

    The first HTTP_INLINE_BYTES of a body are not counted, so that small requests always fit.
    """

    def __init__(self) -> None:
        self._total = 0
        self._held: Counter[str | None] = Counter()
        self._waiting: set[asyncio.Future[None]] = set()

    @contextmanager
    def share(self, owner: str | None) -> Iterator[BodyShare]:
        """Room for one body, given back at the end of the block."""
        share = BodyShare(self, owner)
        try:
            yield share
        finally:
            self._give_back(owner, share.size)

    async def take(self, owner: str | None, size: int) -> None:
        """Take room for that many bytes more. Raises `Refusal` if there is none for a while."""
        try:
            async with asyncio.timeout(config.HTTP_BODIES_WAIT_SECONDS):
                while not self._fits(owner, size):
                    freed = asyncio.get_running_loop().create_future()
                    self._waiting.add(freed)
                    try:
                        await freed
                    finally:
                        self._waiting.discard(freed)
        except TimeoutError:
            raise Refusal(
                "overloaded", "the server holds too many large bodies; try again later"
            ) from None
        self._total += size
        self._held[owner] += size

    def _fits(self, owner: str | None, size: int) -> bool:
        most = config.HTTP_BODIES_BYTES_MAX
        return self._total + size <= most and self._held[owner] + size <= most // 2

    def _give_back(self, owner: str | None, size: int) -> None:
        self._total -= size
        self._held[owner] -= size
        if not self._held[owner]:
            del self._held[owner]
        for freed in self._waiting:
            if not freed.done():
                freed.set_result(None)


class BodyShare:
    """What one body takes of the budget."""

    def __init__(self, budget: BodyBudget, owner: str | None) -> None:
        self._budget = budget
        self._owner = owner
        self.size: int = 0

    async def grow(self, length: int) -> None:
        """Take what a body of this length needs beyond what it has."""
        more = length - config.HTTP_INLINE_BYTES - self.size
        if more > 0:
            await self._budget.take(self._owner, more)
            self.size += more


async def read_body(
    receive: Receive, headers: Headers, *, bytes_max: int, share: BodyShare | None = None
) -> bytes | bytearray:
    """The whole body. Raises `Refusal` if it is too large, takes too long, or there is no room."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(config.HTTP_BODY_SECONDS):
            return await _read(receive, bytes_max, share)
    except TimeoutError:
        seconds = config.HTTP_BODY_SECONDS
        raise Refusal("request_timeout", f"the body did not arrive within {seconds:g} s") from None


async def _read(
    receive: Receive, bytes_max: int, share: BodyShare | None = None
) -> bytes | bytearray:
    message = await receive()
    body: bytes | bytearray = _part_of(message)
    while True:
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
        if share is not None:
            await share.grow(len(body))
        if not message.get("more_body", False):
            return body
        is_large = len(body) > config.HTTP_INLINE_BYTES
        message = await (_next_part(receive) if is_large else receive())
        if isinstance(body, bytes):
            body = bytearray(body)
        # Not by a list of parts that are joined at the end, which takes twice the memory.
        body += _part_of(message)


async def _next_part(receive: Receive) -> Message:
    """The next part of a large body, which must not stall."""
    try:
        async with asyncio.timeout(config.HTTP_BODY_PAUSE_SECONDS):
            return await receive()
    except TimeoutError:
        seconds = config.HTTP_BODY_PAUSE_SECONDS
        raise Refusal("request_timeout", f"the body paused for {seconds:g} s") from None


def _part_of(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    part: bytes = message.get("body", b"")
    return part


def _too_large(bytes_max: int) -> Refusal:
    return Refusal("too_large", f"the body may have at most {bytes_max:,} bytes")


def check_media_type(headers: Headers) -> None:
    """Refuse a body that isn't declared as JSON, or is compressed.

    Without the server's consent, pages of other sites can't send that type.
    """
    media_type, *parameters = headers.get("content-type", "").split(";")
    named = [each.partition("=") for each in parameters]
    charsets = {
        value.strip().strip('"').lower()
        for name, _, value in named
        if name.strip().lower() == "charset"
    }
    if media_type.strip().lower() != "application/json" or not charsets <= {"utf-8"}:
        raise Refusal("unsupported_media_type", "send Content-Type: application/json")
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Refusal("unsupported_media_type", "send the body without a Content-Encoding")


Body = bytes | bytearray | memoryview | msgspec.Raw


def decode_body(body: Body, kind: Any, *, within: str = "") -> Any:
    """The body as that type. A refusal names the bad field.

    The items of a long list are decoded one by one, so that no call of the decoder takes long.

    Args:
        within: The path of the decoded part, if it is not the whole body.
    """
    field = _long_list_of(kind)
    with refusing(within, body):
        text = memoryview(body)
        if field is not None and Reader(text).peek() == "{":
            return _decode_listing(text, kind, field)
        value = _decoder(kind).decode(text)
        check_item(text)
        return value


def decode_value(raw: msgspec.Raw) -> Any:
    """Any value in a body, with integers of any length.

    Raises:
        ValueError: It is no value that can be stored.
        Refusal: It has a key twice.
    """
    text = bytes(raw)
    value = codec.decode(text.decode())
    # Smaller ones were checked with the document.
    if len(text) > config.HTTP_INLINE_BYTES:
        with refusing(""):
            check_keys(text)
    return value


# What decoding a part of a body raises.
_ERRORS: Final = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    DuplicateKey,
    RecursionError,
    TooLong,
)


@contextmanager
def refusing(within: str, body: Body = b"") -> Iterator[None]:
    """Turn the errors of decoding a part of the body into refusals."""
    try:
        yield
    except _ERRORS as error:
        raise _refusal_of(error, within, body) from None


def _refusal_of(error: Exception, within: str, body: Body) -> Refusal:
    match error:
        case msgspec.ValidationError():
            return invalid(error, within=within)
        case msgspec.DecodeError():
            at = lone_surrogate(bytes(memoryview(body)[: config.HTTP_JOB_BYTES_MAX]))
            problem = str(error) if at is None else _HALF.format(at)
        case UnicodeDecodeError():
            problem = "the body is not UTF-8"
        case RecursionError():
            problem = "the body is nested too deeply"
        case TooLong():
            most = config.HTTP_JOB_BYTES_MAX
            return Refusal("too_large", f"{error.what} may have at most {most:,} bytes")
        case _:
            problem = str(error)
    return Refusal("json_invalid", _placed(within, problem))


def _placed(within: str, problem: str) -> str:
    return f"{within}: {problem}" if within else problem


def _decode_listing(text: memoryview, kind: Any, field: msgspec.structs.FieldInfo) -> Any:
    """A document with a long list: its items one by one, and the rest of it."""
    reader = Reader(text)
    listed: list[Any] | None = None
    rest: list[bytes] = []
    for key in reader.names():
        if key == field.encode_name and reader.peek() == "[":
            listed = _decode_items(reader, field)
        else:
            rest.append(msgspec.json.encode(key) + b":" + bytes(reader.value(key)))
    reader.finish()
    others = b"{" + b",".join(rest) + b"}"
    if listed is None:
        # It is missing, or not a list.
        return _decoder(kind).decode(others)
    read = _decoder(_rest_of(kind)).decode(others)
    check_keys(others)
    return kind(**{field.name: listed}, **msgspec.structs.asdict(read))


def _decode_items(reader: Reader, field: msgspec.structs.FieldInfo) -> list[Any]:
    name = field.encode_name
    bare, bounds = get_args(field.type)
    (item,) = get_args(bare)
    decoder = _decoder(item)
    listed: list[Any] = []
    for text in reader.items(name):
        if len(listed) == bounds.max_length:
            problem = f"must have at most {bounds.max_length:,} items"
            raise bad_field(FieldProblem(name, problem))
        try:
            made = decoder.decode(text)
            check_item(text)
        except _ERRORS as error:
            raise _refusal_of(error, f"{name}[{len(listed)}]", text) from None
        listed.append(made)
    if len(listed) < (bounds.min_length or 0):
        raise bad_field(FieldProblem(name, "must not be empty"))
    return listed


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@cache
def _long_list_of(kind: Any) -> msgspec.structs.FieldInfo | None:
    """The field with a list that may be long, if a type has one."""
    for each in msgspec.structs.fields(kind):
        if get_origin(each.type) is Annotated and _bare(each.type) is list:
            bounds = get_args(each.type)[1]
            if bounds.max_length == config.HTTP_BATCH_MAX:
                return each
    return None


@cache
def _rest_of(kind: Any) -> Any:
    """The type without its long list."""
    listed = _long_list_of(kind)
    assert listed is not None
    fields = [
        (each.name, each.type, msgspec.field(default=each.default, name=each.encode_name))
        for each in msgspec.structs.fields(kind)
        if each.name != listed.name
    ]
    return msgspec.defstruct("Rest", fields, forbid_unknown_fields=True, kw_only=True)


def decode_query(query: QueryParams, kind: Any) -> Any:
    """The parameters as that type. Only lists may be repeated. Numbers and booleans aren't text."""
    values: dict[str, Any] = {}
    lists, numbers = _fields_of(kind, list), _fields_of(kind, int)
    booleans = _fields_of(kind, bool)
    for name, value in query.multi_items():
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise bad_field(FieldProblem(name, "is given more than once"))
        else:
            # Not by msgspec's lax mode, which takes the text `null` for None.
            is_number = name in numbers and _NUMBER.fullmatch(value)
            values[name] = int(value) if is_number else value
            if name in booleans:
                values[name] = _BOOLEANS.get(value, value)
    try:
        return msgspec.convert(values, type=kind)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


@cache
def _fields_of(kind: Any, wanted: type) -> frozenset[str]:
    fields = msgspec.structs.fields(kind)
    return frozenset(each.encode_name for each in fields if _bare(each.type) is wanted)


def _bare(kind: Any) -> Any:
    """The type itself, without bounds and None."""
    if get_origin(kind) is UnionType or get_origin(kind) is Union:
        kind = next(arm for arm in get_args(kind) if arm is not NoneType)
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(bare) or bare


def invalid(error: msgspec.ValidationError, *, within: str = "") -> Refusal:
    """The refusal for a value of the wrong type, named by its path."""
    text = str(error)
    where = _WHERE.search(text)
    path = where.group(1) if where else ""
    message = _WHERE.sub("", text)
    for pattern, plain in ((_UNKNOWN, "there is no such field"), (_MISSING, "is required")):
        if named := pattern.fullmatch(message):
            path, message = f"{path}.{named[1]}", plain
    return bad_field(FieldProblem(f"{within}{path}".removeprefix(".") or "body", message))


def bad_field(problem: FieldProblem) -> Refusal:
    """The refusal for one bad field."""
    # Both may contain text of the request.
    field = codec.clean_text(problem.field, bytes_max=_SHOWN_BYTES_MAX)
    problem = FieldProblem(field, codec.clean_text(problem.message, bytes_max=_SHOWN_BYTES_MAX))
    return Refusal("option_invalid", f"{problem.field}: {problem.message}", errors=[problem])

"""Requests: headers, query and body, read within bounds and decoded by type."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from rowlock import codec, config
from rowlock.server.problems import FieldProblem, Refusal

_SHOWN_BYTES_MAX: Final = 512
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
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


class Inbox:
    """The messages of a request, and whether the last part of its body has arrived."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_over = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._is_over = self._is_over or not message.get("more_body", False)
        return message

    async def drained(self, scope: Scope) -> bool:
        """Read the rest of an answered request, and return whether all of it was read.

        Only a small rest that arrives soon is read. If there is more, the connection has to be
        closed, and a client that is still sending might never see the answer.
        """
        if self._is_over or not has_body(headers_of(scope)):
            return True
        try:
            async with asyncio.timeout(config.HTTP_DRAIN_SECONDS):
                await _read(self, config.HTTP_DRAIN_BYTES_MAX)
        except (TimeoutError, Refusal):
            return False
        return True


async def read_body(receive: Receive, headers: Headers, *, bytes_max: int) -> bytes:
    """The whole body. Raises `Refusal` if it is too large or takes too long."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(config.HTTP_BODY_SECONDS):
            return await _read(receive, bytes_max)
    except TimeoutError:
        seconds = config.HTTP_BODY_SECONDS
        raise Refusal("request_timeout", f"the body did not arrive within {seconds:g} s") from None


async def _read(receive: Receive, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(bytes_max: int) -> Refusal:
    return Refusal("too_large", f"the body may have at most {bytes_max:,} bytes")


def check_media_type(headers: Headers) -> None:
    """Refuse a body that isn't declared as JSON.

    Without the server's consent, pages of other sites can't send that type.
    """
    media_type, _, parameters = headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if media_type.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        raise Refusal("unsupported_media_type", "send Content-Type: application/json")


def decode_body(body: bytes | msgspec.Raw, kind: Any, *, within: str = "") -> Any:
    """The body as that type. A refusal names the bad field.

    Args:
        within: The path of the decoded part, if it is not the whole body.
    """
    try:
        # A list that is too long would be refused only after it was decoded, which blocks the
        # loop: a million jobs in 15 MB took 5 s. Counting its items first takes 0.2 s.
        if len(body) >= config.HTTP_OUTLINE_BYTES:
            _outline(kind).decode(body)
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise invalid(error, within=within) from None
    except msgspec.DecodeError as error:
        raise Refusal("json_invalid", str(error)) from None
    except UnicodeDecodeError:
        raise Refusal("json_invalid", "the body is not UTF-8") from None
    except RecursionError:
        raise Refusal("json_invalid", "the body is nested too deeply") from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@cache
def _outline(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder that checks only the lengths of a document's lists."""
    lists: list[tuple[str, Any, Any]] = [
        (each.encode_name, _counted(each.type), UNSET)
        for each in msgspec.structs.fields(kind)
        if get_origin(each.type) is Annotated and _bare(each.type) is list
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Outline", lists))


def _counted(kind: Any) -> Any:
    """A list of anything, within the same bounds."""
    _, *bounds = get_args(kind)
    return Annotated[list[msgspec.Raw], *bounds] | UnsetType


def decode_query(query: QueryParams, kind: Any) -> Any:
    """The parameters as that type. Only lists may be repeated, and only numbers aren't text."""
    values: dict[str, Any] = {}
    lists, numbers = _fields_of(kind, list), _fields_of(kind, int)
    for name, value in query.multi_items():
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise _refused(FieldProblem(name, "is given more than once"))
        else:
            # Not by msgspec's lax mode, which takes the text `null` for None.
            is_number = name in numbers and _NUMBER.fullmatch(value)
            values[name] = int(value) if is_number else value
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
    return _refused(FieldProblem(f"{within}{path}".removeprefix(".") or "body", message))


def _refused(problem: FieldProblem) -> Refusal:
    # Both may contain text of the request.
    field = codec.clean_text(problem.field, bytes_max=_SHOWN_BYTES_MAX)
    problem = FieldProblem(field, codec.clean_text(problem.message, bytes_max=_SHOWN_BYTES_MAX))
    return Refusal("option_invalid", f"{problem.field}: {problem.message}", errors=[problem])

"""Pages for people: the document to read, and what stands in for a dashboard that is not built.

They hold nothing of this installation, and load nothing from elsewhere; what they show they ask the
API for, with the reader's own token.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
from starlette.responses import Response

from rowlock.server.openapi import document
from rowlock.server.problems import Refusal
from rowlock.server.routing import ANY_TOKEN, PUBLIC, AnyRoute, Call, Route

# No script, style or frame but our own files; nothing inline.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


async def get_document(call: Call[None, None]) -> Response:
    from rowlock.server.routes import ROUTES as EVERY

    made = document(
        EVERY,
        prefix=call.request.scope.get("root_path", ""),
        needs_token=not await call.service.gate.is_open(),
    )
    return Response(msgspec.json.encode(made), media_type="application/json")


async def get_docs(call: Call[None, None]) -> Response:
    return page("docs.html")


async def get_docs_file(call: Call[None, None]) -> Response:
    name = call.path["file"]
    if name not in ("docs.js", "docs.css"):
        raise Refusal("not_found", "there is no such file")
    return page(name)


def page(name: str) -> Response:
    """A file of ours, with the policy that keeps others out."""
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    headers = {"content-security-policy": POLICY}
    return Response(_content(name), headers=headers, media_type=f"{media_type}; charset=utf-8")


@cache
def _content(name: str) -> bytes:
    return files("rowlock.server").joinpath("static", name).read_bytes()


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/openapi.json",
        operation="getDocument",
        summary="This document",
        handler=get_document,
        scopes=ANY_TOKEN,
        is_page=True,
    ),
    Route(
        method="GET",
        path="/docs",
        operation="getDocs",
        summary="The document, to be read",
        handler=get_docs,
        scopes=PUBLIC,
        is_page=True,
    ),
    Route(
        method="GET",
        path="/docs/{file}",
        operation="getDocsFile",
        summary="What the page needs",
        handler=get_docs_file,
        scopes=PUBLIC,
        is_page=True,
    ),
]

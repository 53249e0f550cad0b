"""Pages for people: the dashboard at `/`, and the API's document to read at `/docs`.

They hold no data of this installation and load nothing from other sites. They ask the API for the
data they show, with the reader's own token. The dashboard's files are built from `dashboard/` by
make or by the build of a wheel. If there are none, a page says how to build them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from starlette.responses import RedirectResponse, Response

from rowlock.server.openapi import document
from rowlock.server.problems import Refusal
from rowlock.server.routing import ANY_TOKEN, PUBLIC, AnyRoute, Call, Route, path_of

# Only scripts and styles from our own files, nothing inline, and no frames.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# No markup from strings either: the browser would refuse it, should we have such a bug.
DASHBOARD_POLICY: Final = (
    f"{POLICY}; img-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
)
# Assets never change: their names change with their content.
_FOREVER: Final = "public, max-age=31536000, immutable"
_ASSET_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Longer than the name of any asset. For a much longer name, a file system doesn't answer that there
# is no such file, but that there can't be one.
_FILE: Final = re.compile(r"[\w-]{1,60}\.[\w.-]{1,60}", re.ASCII)
_MEDIA_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


async def get_document(call: Call[None, None]) -> Response:
    from rowlock.server.routes import ROUTES as EVERY

    made = document(
        EVERY,
        prefix=call.request.scope.get("root_path", ""),
        needs_token=not call.service.gate.is_open,
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
    """A static file, with the policy that forbids all others."""
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    headers = {"content-security-policy": POLICY}
    return Response(_content(name), headers=headers, media_type=f"{media_type}; charset=utf-8")


@cache
def _content(name: str) -> bytes:
    return files("rowlock.server").joinpath("static", name).read_bytes()


def built() -> Traversable:
    """The directory of the built files, which may be missing."""
    return files("rowlock").joinpath("dashboard")


async def get_home(call: Call[None, None]) -> Response:
    """The dashboard. Below a prefix, its path must end in a slash: it loads relative URLs."""
    _check(call)
    if not path_of(call.request.scope).endswith(b"/"):
        return RedirectResponse(f"{call.request.scope.get('root_path', '')}/", 307)
    try:
        # Read each time, because it names the files of the last build.
        content = built().joinpath("index.html").read_bytes()
    except FileNotFoundError:
        return page("home.html")
    headers = {"content-security-policy": DASHBOARD_POLICY}
    return Response(content, headers=headers, media_type="text/html; charset=utf-8")


async def get_asset(call: Call[None, None]) -> Response:
    """A file that the dashboard loads."""
    _check(call)
    name = call.path["file"]
    kind = _ASSET_TYPES.get(name.rpartition(".")[2])
    if kind is None or _FILE.fullmatch(name) is None:
        raise Refusal("not_found", "there is no such file")
    headers = {"cache-control": _FOREVER, "vary": "accept-encoding"}
    try:
        if "gzip" in call.request.headers.get("accept-encoding", ""):
            packed = _asset(f"assets/{name}.gz")
            return Response(
                packed, headers={**headers, "content-encoding": "gzip"}, media_type=kind
            )
        return Response(_asset(f"assets/{name}"), headers=headers, media_type=kind)
    except FileNotFoundError:
        raise Refusal("not_found", "there is no such file") from None


def _check(call: Call[None, None]) -> None:
    if not call.service.has_dashboard:
        raise Refusal("not_found", "this server has no dashboard; see /docs")


@cache
def _asset(name: str) -> bytes:
    return built().joinpath(name).read_bytes()


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
        summary="This document, for people",
        handler=get_docs,
        scopes=PUBLIC,
        is_page=True,
    ),
    Route(
        method="GET",
        path="/docs/{file}",
        operation="getDocsFile",
        summary="A file of the page for people",
        handler=get_docs_file,
        scopes=PUBLIC,
        is_page=True,
    ),
    Route(
        method="GET",
        path="/",
        operation="getHome",
        summary="The dashboard",
        handler=get_home,
        scopes=PUBLIC,
        is_page=True,
    ),
    Route(
        method="GET",
        path="/assets/{file}",
        operation="getAsset",
        summary="A file of the dashboard",
        handler=get_asset,
        scopes=PUBLIC,
        is_page=True,
    ),
]

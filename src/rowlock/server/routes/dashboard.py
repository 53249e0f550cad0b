"""The dashboard: built files of ours at `/`, which ask the API for all that they show.

They are made from `dashboard/` by make or by the build of a wheel. Where nobody has built them, the
page says how.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.responses import RedirectResponse, Response

from rowlock.server.problems import Refusal
from rowlock.server.router import path_of
from rowlock.server.routes.pages import POLICY, page
from rowlock.server.routing import PUBLIC, AnyRoute, Call, Route

# Elements get no markup from strings either: a mistake of ours would be refused by the browser.
DASHBOARD_POLICY: Final = (
    f"{POLICY}; img-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
)
# Their names change with their content.
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# No file of ours has a longer name; of a far longer one a file system does not say that it is not
# there, but that it can't be.
_FILE: Final = re.compile(r"[\w-]{1,60}\.[\w.-]{1,60}", re.ASCII)


def built() -> Traversable:
    """Where the built files lie; none may be there."""
    return files("rowlock").joinpath("dashboard")


async def get_home(call: Call[None, None]) -> Response:
    """The page; below a prefix it must end in a slash, for what it loads is beside it."""
    _check(call)
    if not path_of(call.request.scope).endswith(b"/"):
        return RedirectResponse(f"{call.request.scope.get('root_path', '')}/", 307)
    try:
        # Read anew each time: it names the files of the last build.
        content = built().joinpath("index.html").read_bytes()
    except FileNotFoundError:
        return page("home.html")
    headers = {"content-security-policy": DASHBOARD_POLICY}
    return Response(content, headers=headers, media_type="text/html; charset=utf-8")


async def get_asset(call: Call[None, None]) -> Response:
    """A file that the page loads."""
    _check(call)
    name = call.path["file"]
    kind = _MEDIA_TYPES.get(name.rpartition(".")[2])
    if kind is None or _FILE.fullmatch(name) is None:
        raise Refusal("not_found", "there is no such file")
    headers = {"cache-control": _FOR_EVER, "vary": "accept-encoding"}
    try:
        if "gzip" in call.request.headers.get("accept-encoding", ""):
            packed = _content(f"assets/{name}.gz")
            return Response(
                packed, headers={**headers, "content-encoding": "gzip"}, media_type=kind
            )
        return Response(_content(f"assets/{name}"), headers=headers, media_type=kind)
    except FileNotFoundError:
        raise Refusal("not_found", "there is no such file") from None


def _check(call: Call[None, None]) -> None:
    if not call.service.has_dashboard:
        raise Refusal("not_found", "this server has no dashboard; see /docs")


@cache
def _content(name: str) -> bytes:
    return built().joinpath(name).read_bytes()


ROUTES: list[AnyRoute] = [
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
        summary="What the dashboard loads",
        handler=get_asset,
        scopes=PUBLIC,
        is_page=True,
    ),
]

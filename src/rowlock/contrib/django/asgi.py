"""The dashboard and the HTTP API below a path of a Django project's ASGI application.

    application = with_dashboard(get_asgi_application(), at="/jobs/")

Users with the permission `rowlock.view_dashboard` have access through their Django session. Others
are redirected to the login. It needs the extra `server`.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any
from urllib.parse import quote

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.shortcuts import resolve_url

from rowlock.contrib.django.project import discover, project_app
from rowlock.server import asgi

Application = Callable[[Any, Any, Any], Awaitable[None]]


def with_dashboard(
    site: Application,
    *,
    at: str = "/rowlock/",
    login_url: str = "admin:login",
    may_enter: Callable[[Any], bool] | None = None,
) -> Application:
    """Return the site with the dashboard below a path.

    Args:
        site: The project's own application, from `get_asgi_application()`.
        at: The path, which begins and ends with a slash.
        login_url: Where users who are not logged in are redirected: a URL, or the name of one.
        may_enter: Called with Django's user. By default, the permission `rowlock.view_dashboard`
            decides. Users with access can do everything that the dashboard offers.
    """
    if not (at.startswith("/") and at.endswith("/") and len(at) > 2):
        raise ValueError(f"at must be a path such as /jobs/, not {at!r}")
    discover()
    queue = asgi(project_app().on_own_connections(), is_open=True)
    may = may_enter or _may_view
    prefix = at.rstrip("/")

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not _is_below(scope, prefix):
            await site(scope, receive, send)
            return
        async with ThreadSensitiveContext():
            user, is_let_in = await sync_to_async(_asks)(scope, may)
        if is_let_in:
            root = scope.get("root_path", "")
            await queue({**scope, "root_path": f"{root}{prefix}"}, receive, send)
        elif user.is_authenticated:
            await _answer(send, 403)
        else:
            there = f"{resolve_url(login_url)}?next={quote(scope['path'])}"
            await _answer(send, 302, (b"location", there.encode()))

    return application


def _is_below(scope: Any, prefix: str) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path == prefix or path.startswith(f"{prefix}/")


def _may_view(user: Any) -> bool:
    return bool(user.is_active and user.has_perm("rowlock.view_dashboard"))


def _asks(scope: Any, may: Callable[[Any], bool]) -> tuple[Any, bool]:
    """Return the user of the request's session, and whether they may enter."""
    close_old_connections()
    try:
        request = ASGIRequest(scope, io.BytesIO())
        session = import_module(settings.SESSION_ENGINE)
        request.session = session.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
        user = get_user(request)
        return user, may(user)
    finally:
        close_old_connections()


async def _answer(send: Any, status: int, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})

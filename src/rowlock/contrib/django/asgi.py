"""The dashboard and the HTTP API below a path of a Django project's ASGI application.

    application = with_dashboard(get_asgi_application(), at="/jobs/")

Users with the permission `rowlock.view_dashboard` can look, through their Django session. With
`rowlock.change_dashboard` they can also act. Others are redirected to the login. It needs the extra
`server`.
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

from rowlock.contrib.asgi import GuardCheck, Visitor
from rowlock.contrib.django.project import discover, project_app
from rowlock.server import asgi
from rowlock.server.gate import GUARD

Application = Callable[[Any, Any, Any], Awaitable[None]]


def with_dashboard(
    site: Application,
    *,
    at: str = "/rowlock/",
    login_url: str = "admin:login",
    may_enter: Callable[[Any], bool | Visitor] | None = None,
) -> Application:
    """Return the site with the dashboard below a path.

    Args:
        site: The project's own application, from `get_asgi_application()`.
        at: The path, which begins and ends with a slash.
        login_url: Where users who are not logged in are redirected: a URL, or the name of one.
        may_enter: Called with Django's user, also while a stream of events lasts. True allows
            everything but to create tokens. A `Visitor` allows what its scopes say. By default,
            `rowlock.view_dashboard` allows to look, and `rowlock.change_dashboard` to act, too.
    """
    if not (at.startswith("/") and at.endswith("/") and len(at) > 2):
        raise ValueError(f"at must be a path such as /jobs/, not {at!r}")
    discover()
    queue = asgi(project_app().on_own_connections(), is_open=True)
    may = may_enter or visitor_of
    prefix = at.rstrip("/")

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not _is_below(scope, prefix):
            await site(scope, receive, send)
            return
        user, verdict = await _ask(scope, may)
        if verdict:

            async def ask_again() -> bool | Visitor:
                return (await _ask(scope, may))[1]

            check = GuardCheck(ask_again, verdict)
            root = scope.get("root_path", "")
            inner = {**scope, "root_path": f"{root}{prefix}", GUARD: check}
            await queue(inner, receive, send)
        elif user.is_authenticated:
            await _answer(send, 403)
        else:
            there = f"{resolve_url(login_url)}?next={quote(scope['path'])}"
            await _answer(send, 302, (b"location", there.encode()))

    return application


def _is_below(scope: Any, prefix: str) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path == prefix or path.startswith(f"{prefix}/")


def visitor_of(user: Any) -> bool | Visitor:
    """Return what Django's permissions allow a user."""
    if not (user.is_active and user.has_perm("rowlock.view_dashboard")):
        return False
    may_act = user.has_perm("rowlock.change_dashboard")
    return Visitor(name=user.get_username(), scopes=["admin" if may_act else "read"])


async def _ask(scope: Any, may: Callable[[Any], bool | Visitor]) -> tuple[Any, bool | Visitor]:
    """Return the user of the request's session, and whether they may enter."""
    async with ThreadSensitiveContext():
        return await sync_to_async(_look)(scope, may)


def _look(scope: Any, may: Callable[[Any], bool | Visitor]) -> tuple[Any, bool | Visitor]:
    close_old_connections()
    try:
        request = ASGIRequest(scope, io.BytesIO())
        session = import_module(settings.SESSION_ENGINE)
        request.session = session.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
        user = get_user(request)
        verdict = may(user)
        if verdict is True:
            # They are known by name, whatever decided.
            verdict = Visitor(name=user.get_username(), scopes=["admin"])
        return user, verdict
    finally:
        close_old_connections()


async def _answer(send: Any, status: int, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})

"""The HTTP API, an ASGI application to serve with `rowlock serve` or to mount in your own.

    from rowlock.server import asgi

    api = FastAPI()
    api.mount("/queue", asgi(app))

It needs the extra `server`.
"""

from __future__ import annotations

try:
    from rowlock.server.app import Api, asgi
except ModuleNotFoundError as _missing:
    if _missing.name not in ("starlette", "uvicorn", "httptools"):
        raise
    raise ModuleNotFoundError(
        f'the server needs {_missing.name}: pip install "rowlock[server]"', name=_missing.name
    ) from _missing

__all__ = ["Api", "asgi"]

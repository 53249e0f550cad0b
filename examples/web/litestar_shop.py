"""A shop in Litestar: an order and the job that confirms it are committed together.

    export ROWLOCK_DATABASE_URL=sqlite:///shop.db
    uvicorn examples.web.litestar_shop:app                the shop, with a worker in it
    curl -s 127.0.0.1:8000/orders --json '{"number": 1}'
    curl -s 127.0.0.1:8000/orders --json '{"number": -1}'     refused, and nothing is left of it

The dashboard is at /queue/, for whoever sends the header `X-Operator: yes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from litestar import Litestar, get, post
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.exceptions import HTTPException, NotFoundException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, JSONBody
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import rowlock
from rowlock.contrib.litestar import RowlockPlugin, transaction

queue = rowlock.App()
driver = "sqlite+aiosqlite" if queue.url.startswith("sqlite:") else "postgresql+psycopg"
engine = create_async_engine(make_url(queue.url).set(drivername=driver))


class Base(DeclarativeBase):
    """The shop's own tables, in the queue's database."""


class Order(Base):
    """What somebody has bought."""

    __tablename__ = "shop_order"

    number: Mapped[int] = mapped_column(primary_key=True)


@queue.task(queue="mail")
async def confirm(number: int) -> str:
    """Tell the customer."""
    return f"order {number} is confirmed"


@dataclass
class NewOrder:
    """The body of a request."""

    number: int


@post("/orders")
async def order(data: JSONBody[NewOrder], db: NamedDependency[AsyncSession]) -> dict[str, str]:
    """Both the order and the job exist if, and only if, this returns."""
    db.add(Order(number=data.number))
    job = await confirm.using(conn=db).aenqueue(number=data.number)
    if data.number < 0:
        raise HTTPException("the card was refused", status_code=402)
    return {"job": job.id}


@get("/jobs/{id:str}")
async def job_of(id: FromPath[str], queue: NamedDependency[rowlock.App]) -> dict[str, Any]:
    """What became of a job."""
    job = await queue.aget(id)
    if job is None:
        raise NotFoundException("there is no such job")
    return {"state": job.state, "result": job.result}


def is_operator(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """As if somebody had logged in."""
    if connection.headers.get("x-operator") != "yes":
        raise PermissionDeniedException


@asynccontextmanager
async def shop_lifespan(app: Litestar) -> AsyncIterator[None]:
    """The shop's own lifespan."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = Litestar(
    [order, job_of],
    lifespan=[shop_lifespan],
    dependencies={"db": transaction(async_sessionmaker(engine))},
    plugins=[
        RowlockPlugin(queue, worker=True, migrate=True, dashboard="/queue", guards=[is_operator])
    ],
)

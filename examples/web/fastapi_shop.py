"""A shop in FastAPI: an order and the job that confirms it are committed together.

    export ROWLOCK_DATABASE_URL=sqlite:///shop.db
    uvicorn examples.web.fastapi_shop:api                 the shop, with a worker in it
    curl -s 127.0.0.1:8000/orders --json '{"number": 1}'
    curl -s 127.0.0.1:8000/orders --json '{"number": -1}'     refused, and nothing is left of it

The dashboard is at /queue/, for whoever sends the header `X-Operator: yes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from starlette.requests import Request

import rowlock
from rowlock.contrib.fastapi import Dashboard, Queue, lifespan, transaction

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


@asynccontextmanager
async def shop_lifespan(api: FastAPI) -> AsyncIterator[None]:
    """The shop's own lifespan."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


def is_operator(request: Request) -> bool:
    """As if somebody had logged in."""
    return request.headers.get("x-operator") == "yes"


board = Dashboard(queue, guard=is_operator)
api = FastAPI(lifespan=lifespan(queue, shop_lifespan, worker=True, migrate=True, dashboard=board))
api.mount("/queue", board)

Db = Annotated[AsyncSession, transaction(async_sessionmaker(engine))]


class NewOrder(BaseModel):
    """The body of a request."""

    number: int


@api.post("/orders", status_code=201)
async def order(new: NewOrder, db: Db) -> dict[str, str]:
    """Both the order and the job exist if, and only if, this returns."""
    db.add(Order(number=new.number))
    job = await confirm.using(conn=db).aenqueue(number=new.number)
    if new.number < 0:
        raise HTTPException(402, "the card was refused")
    return {"job": job.id}


@api.get("/orders/{number}")
async def look(number: int, db: Db) -> dict[str, bool]:
    """Whether there is such an order."""
    return {"is_there": await db.get(Order, number) is not None}


@api.get("/jobs/{id}")
async def job_of(id: str, queue: Queue) -> dict[str, Any]:
    """What became of a job."""
    job = await queue.aget(id)
    if job is None:
        raise HTTPException(404, "there is no such job")
    return {"state": job.state, "result": job.result}

"""rowlock in FastAPI: a lifespan, the queue as a dependency, and a transaction per request.

api = FastAPI(lifespan=lifespan(queue))
Db = Annotated[AsyncSession, transaction(async_sessionmaker(engine))]

@api.post("/orders")
async def order(number: int, db: Db) -> None:
    db.add(Order(number=number))
    await confirm.using(conn=db).aenqueue(number=number)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from fastapi import Depends, Request

from rowlock.app import App
from rowlock.contrib.asgi import Dashboard, Guard, Visitor, serving
from rowlock.contrib.starlette import lifespan, queue_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session, sessionmaker


def _queue_of(request: Request) -> App:
    return queue_of(request)


# A parameter annotated with it gets the queue of the application.
Queue: TypeAlias = Annotated[App, Depends(_queue_of)]


def transaction(sessions: async_sessionmaker[AsyncSession] | sessionmaker[Session]) -> Any:
    """Return a dependency: a session in a transaction, committed before the response is sent.

    It is rolled back if the handler raises an exception, `HTTPException` included. It is committed
    if the handler returns a response, whatever its status. Jobs enqueued with
    `using(conn=session)` are part of the transaction. All parameters of a request share one
    session.

    Example:
        Db = Annotated[AsyncSession, transaction(async_sessionmaker(engine))]
    """
    from sqlalchemy.ext.asyncio import async_sessionmaker

    if isinstance(sessions, async_sessionmaker):
        makes = sessions

        async def abegin() -> AsyncIterator[AsyncSession]:
            async with makes.begin() as session:
                yield session

        return Depends(abegin, scope="function")

    blocking = sessions

    def begin() -> Iterator[Session]:
        with blocking.begin() as session:
            yield session

    # By default FastAPI would end it after the response, so a client would see a success that then
    # fails.
    return Depends(begin, scope="function")


__all__ = [
    "Dashboard",
    "Guard",
    "Queue",
    "Visitor",
    "lifespan",
    "queue_of",
    "serving",
    "transaction",
]

"""A shop in Flask: an order and the job that confirms it are committed together.

flask --app examples.web.flask_shop run                   the shop
flask --app examples.web.flask_shop rowlock worker        and its worker, in another terminal
curl -s 127.0.0.1:5000/orders -d number=1
curl -s 127.0.0.1:5000/orders -d number=-1                refused, and nothing is left of it
"""

from __future__ import annotations

from flask import Flask, abort, current_app, request
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from rowlock.contrib.flask import Rowlock

queue = Rowlock()
# Bound to the application's database when there is one; a session for each context.
db = scoped_session(sessionmaker())


class Base(DeclarativeBase):
    """The shop's own tables, in the queue's database."""


class Order(Base):
    """What somebody has bought."""

    __tablename__ = "shop_order"

    number: Mapped[int] = mapped_column(primary_key=True)
    confirmation: Mapped[str | None]


@queue.task(queue="mail")
def confirm(number: int) -> str:
    """Runs in a context of the application, so that its settings and its session are there."""
    order = db.get_one(Order, number)
    order.confirmation = f"{current_app.config['SHOP']}: order {number} is confirmed"
    db.commit()
    return order.confirmation


def create_app() -> Flask:
    """The application; `flask --app examples.web.flask_shop` finds it."""
    app = Flask(__name__)
    app.config.from_mapping(SHOP="Oars and Sons")
    app.config.from_prefixed_env()
    queue.init_app(app)
    queue.migrate()
    db.configure(bind=engine_of(queue.url))
    app.teardown_appcontext(lambda _: db.remove())

    @app.post("/orders")
    def order() -> dict[str, str]:
        """Both the order and the job exist if, and only if, the session commits."""
        number = int(request.form["number"])
        db.add(Order(number=number))
        job = confirm.using(conn=db).enqueue(number=number)
        if number < 0:
            abort(409, "the card was refused")
        db.commit()
        return {"job": job.id}

    @app.get("/orders/<int(signed=True):number>")
    def look(number: int) -> dict[str, str | None]:
        """What became of an order."""
        order = db.get(Order, number) or abort(404)
        return {"confirmation": order.confirmation}

    return app


def engine_of(url: str) -> Engine:
    """The queue's own database, with the shop's tables in it."""
    driver = "sqlite" if url.startswith("sqlite:") else "postgresql+psycopg"
    engine = create_engine(make_url(url).set(drivername=driver))
    Base.metadata.create_all(engine)
    return engine

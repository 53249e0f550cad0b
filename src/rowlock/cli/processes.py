"""The processes that a worker starts: `python -m rowlock.cli.processes child|slot`.

Their orders come as JSON in one argument. The URL of the database does not: arguments can be read
by every user. A child finds it in its environment, a slot hears it on its socket.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import msgspec

from rowlock.cli import open_inherited_app
from rowlock.observe.log import configure_from_environment
from rowlock.worker import signals


def main() -> None:
    """Run until asked to stop."""
    process, orders = sys.argv[1:]
    signals.leave_to_parent()
    if process == "child":
        _run_child(orders)
    else:
        _run_slot(orders)


def _run_child(text: str) -> None:
    from rowlock.app import DATABASE_URL_VARIABLE
    from rowlock.worker import child
    from rowlock.worker.settings import EXIT_NOT_LOADED

    orders = msgspec.json.decode(text, type=child.Orders)
    configure_from_environment()
    try:
        # Not inside the loop: an app may have a loop of its own for a moment while it is loaded.
        app = open_inherited_app(orders.app, os.environ.get(DATABASE_URL_VARIABLE))
    except SystemExit:
        child.leave(EXIT_NOT_LOADED)
    # At once, whatever threads are still busy.
    child.leave(child.serve(orders, app))


def _run_slot(text: str) -> None:
    from rowlock.worker import slot, wire
    from rowlock.worker.process import die_with_parent

    die_with_parent()
    configure_from_environment()
    orders = msgspec.json.decode(text, type=wire.SlotOrders)
    slot.serve(orders, partial(open_inherited_app, orders.app))


if __name__ == "__main__":
    main()

"""structlog: adds the fields of the job whose handler logs.

structlog.configure(processors=[add_job_fields, ..., structlog.processors.JSONRenderer()])
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from rowlock.worker.report import running_fields


def add_job_fields(
    logger: Any, method_name: str, event_dict: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A processor that adds `job_id`, `kind`, `queue`, `attempt` and `worker` inside a handler.

    The event's own fields are kept.
    """
    for name, value in running_fields().items():
        event_dict.setdefault(name, value)
    return event_dict

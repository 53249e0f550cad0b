"""`app.conf`: the settings of Celery that mean something here, and those that need not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.contrib.compat import Unsupported

# What tunes a broker, a backend or a pool that is not there.
_NEEDLESS = frozenset(
    {
        "result_backend", "result_expires", "result_extended", "result_persistent",
        "task_track_started", "task_reject_on_worker_lost", "task_ignore_result", "task_protocol",
        "task_create_missing_queues", "task_publish_retry", "task_send_sent_event",
        "worker_concurrency", "worker_prefetch_multiplier", "worker_max_tasks_per_child",
        "worker_max_memory_per_child", "worker_send_task_events", "worker_pool",
        "worker_hijack_root_logger", "worker_cancel_long_running_tasks_on_connection_loss",
        "broker_connection_retry", "broker_connection_retry_on_startup", "broker_pool_limit",
        "broker_connection_max_retries", "broker_transport_options", "broker_heartbeat",
        "beat_scheduler", "beat_max_loop_interval",
    }
)  # fmt: skip
# What must be as it is here.
_FIXED: dict[str, tuple[Any, ...]] = {
    "task_serializer": ("json",),
    "result_serializer": ("json",),
    "event_serializer": ("json",),
    "accept_content": (["json"], ("json",), {"json"}, ["application/json"]),
    "enable_utc": (True,),
    "task_acks_late": (True,),
}
_ADVICE = {
    "task_always_eager": "enqueue, and let the test call app.drain()",
    "task_eager_propagates": "enqueue, and let the test call app.drain()",
    "task_acks_late": "a job is done when it has ended, never before; leave it out",
    "task_routes": "give each task its queue: @app.task(queue=...)",
    "task_queues": "any name is a queue; name those of a worker: rowlock worker -q mail,default",
    "task_time_limit": "give it to the tasks: @app.task(time_limit=...)",
    "task_soft_time_limit": "use time_limit on the tasks",
    "task_annotations": "give the tasks their options themselves",
}


class Settings:
    """Attributes and items; a setting that would change what happens, and can't, is refused."""

    beat_schedule: dict[str, Mapping[str, Any]]
    timezone: str | None
    task_default_queue: str

    def __init__(self) -> None:
        # Celery's own queue is "celery"; a task that names none is served by every worker.
        self.__dict__.update({"beat_schedule": {}, "timezone": None})
        self.__dict__["task_default_queue"] = "default"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("beat_schedule", "timezone", "task_default_queue"):
            self.__dict__[name] = dict(value) if name == "beat_schedule" else value
        elif name in ("broker_url", "broker_read_url", "broker_write_url"):
            check_broker(value)
        elif name not in _NEEDLESS and value not in _FIXED.get(name, ()):
            instead = _ADVICE.get(name, "leave it out; payloads and results are JSON")
            raise Unsupported(f"conf.{name} = {value!r:.100}", instead)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def update(self, *mappings: Mapping[str, Any], **values: Any) -> None:
        """Set many."""
        for mapping in (*mappings, values):
            for name, value in mapping.items():
                setattr(self, name, value)


def check_broker(url: str | None) -> None:
    """Raise `Unsupported` for a broker that is no database; its password is not told."""
    if url is not None and url.partition(":")[0] not in ("sqlite", "postgresql", "postgres"):
        raise Unsupported(
            f"a broker at {url.partition(':')[0]}://",
            "give the database (sqlite:///FILE or postgresql://…), or leave it out and set "
            "ROWLOCK_DATABASE_URL",
        )

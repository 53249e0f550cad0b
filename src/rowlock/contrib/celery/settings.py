"""`app.conf`: Celery's settings.

1. A setting that means something here has its effect.
2. A setting that is already true, or tunes a broker, a backend or a pool, is kept and does nothing.
3. A setting that belongs somewhere else, such as to the command line, is kept, and a warning in the
   log says where.
4. Any other is refused with `Unsupported`, which says what to do instead.
5. Names that are not Celery's are your own values, and are kept.

As in Celery, `config_from_object("module")` is read at the first look at a setting, and what was
set on `conf` itself takes precedence.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any, Final

from rowlock import suggest
from rowlock.contrib.celery.routes import Router
from rowlock.contrib.celery.schedules import expression_of
from rowlock.contrib.compat import Unsupported

logger: logging.Logger = logging.getLogger("rowlock.contrib.celery")

# The settings that have an effect, with their defaults.
DEFAULTS: Final[Mapping[str, Any]] = {
    "beat_schedule": {},
    "broker_url": None,
    "enable_utc": True,
    "imports": (),
    "include": (),
    "result_expires": timedelta(days=1),
    "task_always_eager": False,
    "task_annotations": None,
    "task_default_priority": None,
    # Celery's default queue is "celery". Here it is rowlock's, which every worker serves.
    "task_default_queue": "default",
    "task_default_rate_limit": None,
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_routes": None,
    "task_soft_time_limit": None,
    "task_time_limit": None,
    "timezone": None,
    "worker_disable_rate_limits": False,
}
# Settings with only some possible values here, and what to do instead of the others.
_JSON = "leave it out, or set it to json: payloads and results are JSON"
_SCHEDULES = (
    "leave it out: every worker fires the entries of beat_schedule. Create those of its tables "
    "with app.schedule(...); `rowlock cron` and the dashboard pause and delete them"
)
_FIXED: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "event_serializer": (("json",), _JSON),
    "result_serializer": (("json",), _JSON),
    "task_serializer": (("json",), _JSON),
    "task_acks_on_failure_or_timeout": ((True,), "leave it out: a failed job is not run again"),
    "task_acks_on_failure": ((True,), "leave it out: a failed job is not run again"),
    "task_acks_on_timeout": ((True,), "leave it out: a job past its limit is not run again"),
    "task_create_missing_queues": ((True,), "leave it out: every name is a queue"),
    "task_inherit_parent_priority": ((False,), "pass priority= to apply_async"),
    "task_store_eager_result": ((False,), "keep what apply() returns"),
    "worker_direct": ((False,), "give such tasks a queue of their own: @app.task(queue=...)"),
    "beat_scheduler": (
        ("celery.beat:PersistentScheduler", "celery.beat.PersistentScheduler"),
        _SCHEDULES,
    ),
    "override_backends": (({},), "leave it out: results are stored with their jobs"),
}
# Settings that are made elsewhere. The text is logged, with the value.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "worker_concurrency": "start workers with `rowlock worker -c {value}`",
    "worker_max_tasks_per_child": "start workers with `rowlock worker --max-jobs {value}`",
    "worker_max_memory_per_child": "start workers with `rowlock worker --max-memory`, in MB",
    "worker_pool": "tasks run in threads; @app.task(executor='process') gives them processes",
    "worker_autoscaler": "`rowlock worker -c` sets how many jobs run at once",
    "worker_soft_shutdown_timeout": "start workers with `rowlock worker --grace {value}`",
    "worker_log_format": "`rowlock worker --help` shows how to set the log, or use setup_logging",
    "worker_task_log_format": "`rowlock worker --help` shows how to set the log",
    "worker_state_db": "revoked jobs are stored in the database; leave it out",
    "beat_cron_starting_deadline": "ticks missed by more than five minutes are skipped",
    "task_remote_tracebacks": "read the traceback from AsyncResult.traceback",
}
_REFUSED: Final[Mapping[str, str]] = {
    "security_certificate": "leave it out: only who can write to the database can enqueue",
    "security_cert_store": "leave it out: only who can write to the database can enqueue",
    "security_key": "leave it out: only who can write to the database can enqueue",
    "worker_consumer": "leave it out: there are no consumers of messages",
    "worker_agent": "leave it out: there are no agents",
}
# They tune what does not exist here, or ask for what is always so.
_HARMLESS: Final = frozenset(
    {
        "broker_read_url", "broker_write_url", "beat_max_loop_interval", "beat_schedule_filename",
        "beat_sync_every", "beat_enable_remote_control", "beat_remote_control_max_tick_age",
        "accept_content", "result_accept_content", "task_acks_late", "task_reject_on_worker_lost",
        "task_retry_on_worker_lost",
        "task_allow_error_cb_on_chord_header", "task_compression",
        "task_create_missing_queue_exchange_type", "task_create_missing_queue_type",
        "task_default_delivery_mode", "task_default_exchange", "task_default_exchange_type",
        "task_default_queue_type", "task_default_routing_key", "task_protocol",
        "task_publish_retry", "task_publish_retry_policy", "task_queue_ha_policy",
        "task_queue_max_priority", "task_queues", "task_repr_maxlevels", "task_send_sent_event",
        "task_store_errors_even_if_ignored", "task_track_started", "security_digest",
        "security_key_password", "worker_cancel_long_running_tasks_on_connection_loss",
        "worker_deduplicate_successful_tasks", "worker_detect_quorum_queues",
        "worker_disable_prefetch", "worker_enable_prefetch_count_reduction",
        "worker_enable_remote_control", "worker_enable_soft_shutdown_on_idle",
        "worker_eta_task_limit", "worker_hijack_root_logger", "worker_log_color",
        "worker_log_datefmt", "worker_lost_wait", "worker_pool_putlocks", "worker_pool_restarts",
        "worker_pool_start_method", "worker_prefetch_multiplier", "worker_proc_alive_timeout",
        "worker_redirect_stdouts", "worker_redirect_stdouts_level", "worker_send_task_events",
        "worker_task_log_datefmt", "worker_timer", "worker_timer_precision",
    }
)  # fmt: skip
# All settings of a broker, or of a backend: nothing of theirs exists here.
_HARMLESS_PREFIXES: Final = (
    "arangodb_", "azureblockblob_", "broker_", "cache_", "cassandra_", "control_", "cosmosdbsql_",
    "couchbase_", "database_", "dynamodb_", "elasticsearch_", "event_", "gcs_", "mongodb_",
    "redis_", "result_", "s3_",
)  # fmt: skip
_PREFIXES: Final = ("beat_", "task_", "worker_", "broker_", "result_")
_KNOWN: Final = {*DEFAULTS, *_FIXED, *_ELSEWHERE, *_REFUSED, *_HARMLESS}
# The old names of Celery 3 that do not follow the rules of `_new_name`.
_OLD: Final[Mapping[str, str]] = {
    "CELERYD_TASK_TIME_LIMIT": "task_time_limit",
    "CELERYD_TASK_SOFT_TIME_LIMIT": "task_soft_time_limit",
    "CELERY_TASK_RESULT_EXPIRES": "result_expires",
    "CELERY_EAGER_PROPAGATES_EXCEPTIONS": "task_eager_propagates",
    "CELERY_MESSAGE_COMPRESSION": "task_compression",
    "CELERY_TASK_SERIALIZER": "task_serializer",
    "CELERY_TASK_PROTOCOL": "task_protocol",
    "CELERY_TASK_PUBLISH_RETRY": "task_publish_retry",
    "CELERY_TASK_PUBLISH_RETRY_POLICY": "task_publish_retry_policy",
    "CELERY_SEND_TASK_SENT_EVENT": "task_send_sent_event",
    "CELERY_SEND_EVENTS": "worker_send_task_events",
    "CELERY_DISABLE_RATE_LIMITS": "worker_disable_rate_limits",
    "CELERY_ENABLE_REMOTE_CONTROL": "worker_enable_remote_control",
    "CELERY_REDIRECT_STDOUTS": "worker_redirect_stdouts",
    "CELERY_REDIRECT_STDOUTS_LEVEL": "worker_redirect_stdouts_level",
    "CELERY_WORKER_DIRECT": "worker_direct",
    "CELERY_MAX_CACHED_RESULTS": "result_cache_max",
}


class Settings:
    """Settings as attributes and items.

    Args:
        on_change: Called with the name and the value of a setting that has an effect.
    """

    def __init__(self, on_change: Callable[[str, Any], None]) -> None:
        own: dict[str, Any] = {
            "_on_change": on_change,
            "_values": {},
            # What is to be read at the first look, and what it must not overwrite.
            "_sources": [],
            "_explicit": set[str](),
            # Another thread must not see them half read. The same one may: a source may look.
            "_reading": threading.RLock(),
        }
        self.__dict__.update(own)
        self._values["beat_schedule"] = BeatSchedule()

    _on_change: Callable[[str, Any], None]
    _values: dict[str, Any]
    _sources: list[Callable[[], Mapping[str, Any]]]
    _explicit: set[str]
    _reading: threading.RLock

    def read_later(self, source: Callable[[], Mapping[str, Any]]) -> None:
        """Read these settings at the first look at any."""
        self._sources.append(source)

    def now(self, name: str) -> Any:
        """Return a setting as it is so far, without reading what is to be read."""
        return self._values.get(name, DEFAULTS[name])

    def resolve(self) -> None:
        """Read what is to be read."""
        with self._reading:
            while self._sources:
                source = self._sources.pop(0)
                for name, value in source().items():
                    if name not in self._explicit:
                        self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        checked = _checked(name, value)
        if name in DEFAULTS:
            self._on_change(name, checked)
        self._values[name] = checked

    def __setattr__(self, name: str, value: Any) -> None:
        name = _new_name(name)
        self._set(name, value)
        self._explicit.add(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.resolve()
        name = _new_name(name)
        if name in self._values:
            return self._values[name]
        if _is_known(name):
            return DEFAULTS.get(name, _FIXED.get(name, ((None,),))[0][0])
        raise AttributeError(f"no setting {name!r} was made")

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def __contains__(self, name: object) -> bool:
        self.resolve()
        return isinstance(name, str) and (_is_known(name) or name in self._values)

    def __iter__(self) -> Iterator[str]:
        self.resolve()
        return iter(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or the default if it was not made."""
        try:
            return self[name]
        except KeyError:
            return default

    def update(self, *mappings: Mapping[str, Any], **values: Any) -> None:
        """Set several settings."""
        for mapping in (*mappings, values):
            for name, value in mapping.items():
                setattr(self, name, value)


class BeatSchedule(dict[str, Mapping[str, Any]]):
    """`beat_schedule`: entries by name. One that can't be fired is refused where it is set."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        super().__init__()
        self.update(entries or {})

    def __setitem__(self, name: str, entry: Mapping[str, Any]) -> None:
        check_entry(name, entry)
        super().__setitem__(name, entry)

    def update(self, *mappings: Any, **entries: Any) -> None:
        """Add entries."""
        for name, entry in dict(*mappings, **entries).items():
            self[name] = entry


def check_entry(name: str, entry: Mapping[str, Any]) -> None:
    """Raise `Unsupported` for an entry of `beat_schedule` that can't be fired."""
    for key in entry:
        if key not in ("task", "schedule", "args", "kwargs", "options", "relative"):
            raise Unsupported(f"beat_schedule[{name!r}] {key!r}", "leave it out")
    for option in ("eta", "countdown", "task_id"):
        if (entry.get("options") or {}).get(option) is not None:
            raise Unsupported(f"beat_schedule[{name!r}] {option}=", "leave it out")
    expression_of(entry["schedule"])


def _checked(name: str, value: Any) -> Any:
    """Return a setting as it is kept."""
    if name in _REFUSED and value is not None:
        raise Unsupported(f"conf.{name}", _REFUSED[name])
    if name in _FIXED and value is not None:
        allowed, instead = _FIXED[name]
        plain = sorted(value) if isinstance(value, tuple | set | frozenset) else value
        if plain not in allowed and value not in allowed:
            raise Unsupported(f"conf.{name} = {value!r:.100}", instead)
    if name in _ELSEWHERE and value is not None:
        logger.warning("conf.%s has no effect: %s", name, _ELSEWHERE[name].format(value=value))
    match name:
        case "task_acks_late" | "task_reject_on_worker_lost" if value is False:
            # Celery's default, so that leaving it out would change nothing.
            text = "conf.%s has no effect: a job whose worker dies runs again"
            logger.warning(text, name)
        case "accept_content" | "result_accept_content" if value is not None:
            if not {"json", "application/json"} & set(value):
                raise Unsupported(f"conf.{name} without json", _JSON)
        case "beat_schedule":
            return BeatSchedule(value)
        case "timezone" if value is not None:
            # It may be an object of pytz or zoneinfo, whose text is its name.
            return str(value)
        case "task_routes":
            Router(value)
        case "result_backend" if value is not None:
            _say_backend(str(value))
        case _ if not _is_known(name):
            _say_unknown(name)
    return value


def _say_backend(backend: str) -> None:
    # Not the whole URL: it may have a password.
    scheme = backend.partition(":")[0]
    text = "conf.result_backend (%s) has no effect: results are stored with their jobs"
    logger.info(text, scheme)


def _say_unknown(name: str) -> None:
    near = suggest.nearest(name, _KNOWN) if name.startswith(_PREFIXES) else []
    if near:
        logger.warning("conf.%s is not a setting of Celery's; did you mean %s?", name, near[0])


def _is_known(name: str) -> bool:
    return name in _KNOWN or name.startswith(_HARMLESS_PREFIXES)


def _new_name(name: str) -> str:
    """Return the name of a setting since Celery 4. Any other name is returned as it is."""
    if not name.isupper():
        return name
    if name in _OLD:
        return _OLD[name]
    prefixes = (("BROKER_", "broker_"), ("CELERYBEAT_", "beat_"), ("CELERYD_", "worker_"))
    for old, new in (*prefixes, ("CELERY_", ""), ("CELERY_", "task_")):
        found = new + name.removeprefix(old).lower()
        if name.startswith(old) and _is_known(found):
            return found
    return name


def read_object(source: Any, namespace: str | None) -> dict[str, Any]:
    """Return the settings of an object, a mapping, or a module or object by its path.

    With a namespace, `CELERY_TIMEZONE` is `timezone`. Without one, names are `timezone`, or the old
    ones of Celery 3.
    """
    found = _imported(source) if isinstance(source, str) else source
    prefix = f"{namespace.upper()}_" if namespace else ""
    values: dict[str, Any] = {}
    for name in found if isinstance(found, Mapping) else dir(found):
        if prefix:
            new = name.removeprefix(prefix).lower()
            is_setting = name.startswith(prefix) and name.isupper()
        else:
            new = _new_name(name)
            is_setting = not name.startswith("_") and new.islower()
        if is_setting:
            value = found[name] if isinstance(found, Mapping) else getattr(found, name)
            # Imports of a module are not settings, unless they are routers.
            is_import = isinstance(value, ModuleType) or (callable(value) and not _is_known(new))
            if not is_import:
                values[new] = value
    return values


def _imported(path: str) -> Any:
    """Return `module`, `module:attribute` or `module.attribute`."""
    module, colon, attribute = path.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        module, _, attribute = path.rpartition(".")
        if error.name is None or not module or not f"{path}.".startswith(f"{error.name}."):
            raise
        return getattr(importlib.import_module(module), attribute)

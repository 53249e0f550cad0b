"""One run of a task: its hooks and signals in Celery's order, and what its end means for the job.

1. `trace` runs a task and raises what ended it. It knows nothing of jobs.
2. `run_job` turns that end into one of rowlock's. `run_eagerly` turns it into a result.
3. A hook that raises is logged, and changes nothing, except `before_start`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rowlock import codec
from rowlock.context import Cancel, Context, Fail, Release, Throttled, TimedOut
from rowlock.contrib.celery import fixups, signals, states
from rowlock.contrib.celery.app.task import Request, Task
from rowlock.contrib.celery.exceptions import (
    ExceptionInfo,
    Ignore,
    Reject,
    Replaced,
    Retry,
    SoftTimeLimitExceeded,
)
from rowlock.contrib.celery.local import runs
from rowlock.contrib.celery.result import (
    REPLACED,
    AsyncResult,
    EagerResult,
    ResultSet,
    call_of,
    replaced_mark,
    resolved,
)
from rowlock.contrib.celery.stamps import STAMPED
from rowlock.contrib.compat import LooseSchema, is_over, permanent
from rowlock.errors import PayloadInvalid
from rowlock.interrupts import call_within

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.job import Job

logger: logging.Logger = logging.getLogger("rowlock.contrib.celery")

# The keys in a job's `meta`.
EXPIRES: Final = "expires_at"
IGNORED: Final = "ignored"
# The argument of a run whose payload is not decoded yet.
_UNTYPED: Final = "rowlock_untyped"

_NO_HOOKS: Final = (states.IGNORED, states.REJECTED, states.REVOKED)


def run_job(task: Task, context: Context, arguments: Mapping[str, Any]) -> Any:
    """Run a job in a worker."""
    job = context.job
    request = request_of(task, context, arguments)
    if _has_expired(job):
        _send_revoked(task, request, expired=True)
        raise Cancel("expired")
    with _current(task, request), _connections(task):
        if (overdue := _overdue(context)) is not None:
            _fail(task, request, overdue)
            raise permanent(overdue)
        try:
            result = trace(task, request)
        except Replaced as replaced:
            return replaced.mark
        except Ignore as ignored:
            raise Cancel(f"{IGNORED}: {ignored}") from None
        except Reject as rejected:
            if rejected.requeue:
                raise Release(reason=str(rejected)) from None
            failed: Exception = rejected
        except (Retry, Cancel, Fail, Release, Throttled):
            raise
        except Exception as error:  # noqa: BLE001  # raised on below, without this one as its context
            failed = error
        else:
            return _stored(request, None if request.ignore_result else result)
    raise permanent(failed)


def _stored(request: Request, result: Any) -> Any:
    """Return what a job keeps of the value of its run."""
    if isinstance(result, AsyncResult | ResultSet):
        result = result.as_tuple()
    return (
        replaced_mark(value=result, more=request.chord_additions)
        if request.chord_additions
        else result
    )


def run_eagerly(task: Task, request: Request, *, throw: bool) -> EagerResult:
    """Run a task at once. Its retries follow without a pause."""
    assert request.id is not None
    done = partial(EagerResult, request.id, name=task.full_name)
    while True:
        with _current(task, request):
            try:
                return done(trace(task, request), states.SUCCESS)
            except Retry:
                request.retries += 1
            except Ignore as ignored:
                return done(ignored, states.IGNORED)
            except Reject as rejected:
                return done(rejected, states.REJECTED)
            except Cancel as cancelled:
                return done(cancelled, states.REVOKED)
            except Exception as error:
                if throw:
                    raise
                return done(error, states.FAILURE)


def trace(task: Task, request: Request) -> Any:
    """Run a task with its hooks and signals. Raises what ended it."""
    call = (request.args, request.kwargs)
    about: dict[str, Any] = {"task_id": request.id, "task": task}
    about.update(args=request.args, kwargs=request.kwargs)
    signals.task_received.send(sender="rowlock.worker", request=request)
    signals.task_prerun.send(sender=task, **about)
    state: str = states.FAILURE
    value: Any = None
    began = time.monotonic()
    try:
        task.before_start(str(request.id), *call)
        value = _called(task, request)
        state = states.SUCCESS
        seconds = time.monotonic() - began
        _hook(task, request, task.on_success, value, request.id, *call)
        signals.task_success.send(sender=task, result=value, runtime=seconds)
        _hook(task, request, task.after_return, state, value, request.id, *call, None)
    except TimedOut:
        raise
    except Exception as error:
        state, value = _state_of(error), error
        _end(task, request, state, error)
        raise
    finally:
        signals.task_postrun.send(sender=task, retval=value, state=state, **about)
    return value


def _called(task: Task, request: Request) -> Any:
    """Call the function within its soft limit. A class with its own `__call__` is called so."""
    function: Callable[..., Any] = task.run
    if type(task).__call__ is not Task.__call__:
        request.__dict__["is_fresh"] = True
        function = task
    call = partial(function, *request.args, **request.kwargs)
    soft = request.timelimit[1]
    return call() if soft is None else call_within(soft, SoftTimeLimitExceeded, call)


def _state_of(error: Exception) -> str:
    match error:
        case Retry():
            return states.RETRY
        case Ignore() | Release() | Throttled():
            return states.IGNORED
        case Reject():
            return states.REJECTED
        case Cancel():
            return states.REVOKED
        case _:
            return states.FAILURE


def _end(task: Task, request: Request, state: str, error: Exception) -> None:
    """Call the hooks of a run that raised."""
    if state == states.REVOKED:
        _send_revoked(task, request, terminated=True)
    elif isinstance(error, Retry):
        info = ExceptionInfo(error)
        call = (request.id, request.args, request.kwargs, info)
        _hook(task, request, task.on_retry, error.exc, *call)
        signals.task_retry.send(sender=task, request=request, reason=error, einfo=info)
    elif state not in _NO_HOOKS:
        _fail(task, request, error)


def _fail(task: Task, request: Request, error: Exception) -> None:
    info = ExceptionInfo(error)
    call = (request.id, request.args, request.kwargs, info)
    _hook(task, request, task.on_failure, error, *call)
    signals.task_failure.send(
        sender=task,
        task_id=request.id,
        exception=error,
        args=request.args,
        kwargs=request.kwargs,
        traceback=error.__traceback__,
        einfo=info,
    )
    _hook(task, request, task.after_return, states.FAILURE, error, *call)


def _hook(task: Task, request: Request, hook: Callable[..., Any], *args: Any) -> None:
    try:
        hook(*args)
    except Exception:
        logger.exception("task %s[%s]: %s raised", task.name, request.id, hook.__name__)


def _send_revoked(task: Task, request: Request, **how: bool) -> None:
    whole = {"terminated": False, "expired": False, "signum": None, **how}
    signals.task_revoked.send(sender=task, request=request, **whole)


@contextmanager
def _current(task: Task, request: Request) -> Iterator[None]:
    """Make a run the current one."""
    before = runs.set((*runs.get(), (task, request)))
    try:
        yield
    finally:
        runs.reset(before)


def _connections(task: Task) -> Any:
    return fixups.fresh_connections() if task.app.is_django else nullcontext()


# From a job


def request_of(task: Task, context: Context, arguments: Mapping[str, Any]) -> Request:
    """Return what `self.request` says of a job's run."""
    job = context.job
    own = call_of(job)
    if _UNTYPED in arguments:
        arguments = _typed(task, job, arguments[_UNTYPED])
    args, kwargs = task.shape.call(arguments, given=own.get("args", 0))
    headers = own.get("headers", {})
    if own.get("failed"):
        # An errback: what ended the other job takes the place of three arguments.
        room = own.get("room", 3)
        args = (*_failure_of(task.app, str(own["failed"]))[:room], *args[room:])
    soft = own.get("soft", task.app.soft_limit_of(task))
    return Request(
        id=job.id,
        task=job.kind,
        retries=context.attempt - 1,
        args=list(args),
        kwargs=kwargs,
        called_directly=False,
        context=context,
        headers=headers,
        stamps=headers.get("stamps", {}),
        stamped_headers=headers.get(STAMPED, ()),
        canvas_root=own.get("root"),
        parent_id=own.get("parent"),
        group=own.get("group"),
        # The body of a chord knows it from the header, by what it gets.
        chord=bool(own.get("group")) or None,
        replaced_task_nesting=own.get("nesting", 0),
        eta=own.get("eta"),
        delivery_info={
            "exchange": "",
            "routing_key": job.queue,
            "priority": job.priority,
            "redelivered": context.attempt > 1,
        },
        hostname=job.worker,
        expires=job.meta.get(EXPIRES),
        timelimit=(job.timeout, soft),
        ignore_result=own.get("ignore_result", task.app.ignores_result_of(task)),
    )


class CanvasSchema(LooseSchema):
    """Leaves a payload as it is if a result in it names other jobs, which the run reads first."""

    def arguments(self, payload_text: str) -> dict[str, Any]:
        """As of all tasks, or the text itself."""
        if f'"{REPLACED}"' in payload_text:
            return {_UNTYPED: payload_text}
        return self.typed(payload_text)

    def typed(self, payload_text: str) -> dict[str, Any]:
        """As `arguments` of all tasks."""
        return super().arguments(payload_text)


def _typed(task: Task, job: Job, payload_text: str) -> dict[str, Any]:
    """Return the arguments of a payload, with the values of the jobs that it names."""
    fields = codec.decode(payload_text)
    if call_of(job).get("gets"):
        fields = {name: resolved(task.app, job, each) for name, each in fields.items()}
    schema = task.bound.schema
    assert isinstance(schema, CanvasSchema)
    try:
        return schema.typed(json.dumps(fields))
    except PayloadInvalid as error:
        raise permanent(error) from None


def _failure_of(app: Celery, id: str) -> tuple[Request, Any, str | None]:
    """Return the request, the error and the traceback of a job that failed."""
    result = AsyncResult(id, app=app)
    job = result.job
    request = Request(id=id, called_directly=False)
    if job is not None:
        request.task, request.kwargs = job.kind, job.payload
    return request, result.result, result.traceback


def _has_expired(job: Job) -> bool:
    expires = job.meta.get(EXPIRES)
    if expires is not None and is_over(datetime.fromisoformat(str(expires))):
        return True
    # Of a schedule: each of its jobs counts from its own time.
    seconds = call_of(job).get("expires_seconds")
    return seconds is not None and is_over(job.created_at + timedelta(seconds=float(seconds)))


def _overdue(context: Context) -> TimeoutError | None:
    """Return the error of a job whose last run exceeded its limit: as in Celery, it has failed."""
    errors = context.job.errors
    last = errors[-1] if errors else None
    if last is not None and (last.attempt, last.type) == (context.attempt - 1, "TimeoutError"):
        return TimeoutError(last.message)
    return None

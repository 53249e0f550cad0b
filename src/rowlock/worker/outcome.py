"""What an exception of a handler means for its job: pure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any

from rowlock import codec, config, retry
from rowlock.config import SECOND_US
from rowlock.context import Cancel, Fail, Release, TimedOut
from rowlock.errors import PayloadInvalid
from rowlock.job import JobError
from rowlock.lifecycle import CancelSeen, Failed, Outcome, Released, Succeeded
from rowlock.task import Task

# What a coroutine of a handler may raise: any of it is its job's outcome, `sys.exit()` too. A
# KeyboardInterrupt is not: it comes from the terminal of the process that the worker lives in.
RAISED = (Exception, SystemExit, GeneratorExit, TimedOut)
# The modules between the worker's loop and the handler.
_OURS = ("rowlock.worker.", "rowlock.contrib.")
_NO_RESULT = Succeeded(*codec.encode_result(None))
_NOT_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)


def success(result: object) -> Succeeded:
    """The handler returned; a result that can't be stored is noted, not a failure.

    Raises:
        TypeError: It returned what would have to be run first: nothing has been done.
    """
    if result is None:
        return _NO_RESULT
    if isinstance(result, _NOT_RUN):
        if isinstance(result, CoroutineType):
            result.close()
        raise TypeError(
            f"it returned a {type(result).__name__}, which nobody runs: a task whose function "
            "is wrapped must be `async def` itself, or run it to its end"
        )
    text, problem = codec.encode_result(result)
    return Succeeded(text, problem)


def is_last(error: BaseException, *, attempt: int, max_attempts: int) -> bool:
    """Whether a run that ended by this exception is its job's last one."""
    match error:
        case Release() | asyncio.CancelledError():
            return False
        case Fail() | Cancel():
            return True
        case _:
            return attempt >= max_attempts


class PayloadMisfit(Exception):
    """The stored payload does not fit the parameters of this worker's function.

    `misfits` is how often that happened to the job before.
    """

    def __init__(self, invalid: PayloadInvalid, *, misfits: int) -> None:
        self.misfits = misfits
        super().__init__(str(invalid))


def count_misfits(errors: Sequence[JobError], *, attempt: int) -> int:
    """How many attempts before this one found that the payload did not fit.

    A job that was taken back by `retry` begins again with its first attempt, and keeps its errors:
    those of its earlier life are not counted.
    """
    count = 0
    for error in reversed(errors):
        if error.attempt > attempt:
            break
        attempt = error.attempt
        count += error.type == PayloadMisfit.__name__
    return count


def outcome_of(error: BaseException, task: Task[..., Any], *, attempt: int) -> Outcome:
    """The outcome of a run that ended by an exception."""
    match error:
        case Release():
            return Released(error.delay_us, error.reason)
        case Cancel():
            return CancelSeen(str(error) or None)
        case asyncio.CancelledError():
            return CancelSeen()
        case Fail():
            return _failed(error, permanent=True)
        case PayloadMisfit():
            return _misfit(error)
        case _:
            return _failed(error, delay=_asked_delay(error, task, attempt))


def _misfit(error: PayloadMisfit) -> Failed:
    """Tried again for as long as a deployment may take, and not as often as other failures."""
    waits = config.MISFIT_RETRY_SECONDS
    name = type(error).__name__
    if error.misfits >= len(waits):
        return Failed(name, str(error), permanent=True)
    return Failed(name, str(error), delay=waits[error.misfits] * SECOND_US)


def _failed(error: BaseException, *, permanent: bool = False, delay: int | None = None) -> Failed:
    text = codec.error_record(error.with_traceback(_from_handler(error.__traceback__)))
    return Failed(text.type, text.message, text.traceback, permanent=permanent, delay=delay)


def _from_handler(frames: TracebackType | None) -> TracebackType | None:
    """The frames without our own at the top: a user looks for theirs."""
    theirs = frames
    while theirs is not None and _is_ours(theirs):
        theirs = theirs.tb_next
    return theirs or frames


def _is_ours(frames: TracebackType) -> bool:
    return str(frames.tb_frame.f_globals.get("__name__")).startswith(_OURS)


def _asked_delay(error: BaseException, task: Task[..., Any], attempt: int) -> int | None:
    """A callable policy is asked here, where the handler ran; a stored one by the store."""
    policy = task.settings.retry
    if not isinstance(policy, retry.CallablePolicy):
        return None
    return round(retry.ask(policy, attempt, error).seconds * SECOND_US)

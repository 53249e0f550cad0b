"""`JobTimeoutException`: what a function gets that has run for its `job_timeout`."""

from __future__ import annotations

from rowlock.context import TimedOut

# Not an `Exception`, unlike RQ's: the run has failed, whatever the function does with it.
JobTimeoutException = TimedOut
BaseTimeoutException = TimedOut

__all__ = ["BaseTimeoutException", "JobTimeoutException"]

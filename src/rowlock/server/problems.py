"""Errors as `application/problem+json`: every code has one status and one title.

Messages of the database, of files and of libraries stay in the log. The body of a problem has only
our own words about the caller's own request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.responses import Response

from rowlock import config
from rowlock.errors import (
    FieldError,
    Forbidden,
    OptionInvalid,
    PayloadInvalid,
    RowlockError,
)
from rowlock.ids import new_id

logger: logging.Logger = logging.getLogger("rowlock.server")

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem: its status, its title, and when it occurs or what to do about it.

    `detail` replaces the text of an error that callers must not see.
    """

    status: int
    title: str
    detail: str | None = None
    when: str = ""


AWAY: Final = "the database does not answer, or can't do the work now; try again later"


def _mebibytes(number: int) -> str:
    return f"{number // 1024**2} MiB"


KINDS: Final[Mapping[str, ProblemKind]] = {
    # Errors of the library.
    "payload_invalid": ProblemKind(
        422,
        "The payload is invalid",
        when="It does not fit its task, or can't be stored. `errors` names every bad field.",
    ),
    "option_invalid": ProblemKind(
        422,
        "A value is out of range, or of the wrong type",
        when="It is a field or parameter outside the payload. `errors` names it.",
    ),
    "idempotency_key_reused": ProblemKind(
        422,
        "The idempotency key belongs to another request",
        when="A request with the same `Idempotency-Key` had another body in the last 24 hours. "
        "Nothing was enqueued.",
    ),
    "not_found": ProblemKind(
        404,
        "Not found",
        when="There is no such path, job, schedule or token, or it belongs to another tenant.",
    ),
    "invalid_transition": ProblemKind(
        409, "The current state does not allow it", when="Nothing was changed."
    ),
    "lease_lost": ProblemKind(
        409, "The lease is lost", when="Another worker may run the job. Stop working on it."
    ),
    "forbidden": ProblemKind(
        403,
        "The credential does not allow it",
        when="Its scope or tenant does not, or a page of another site sent the request.",
    ),
    "store_unavailable": ProblemKind(
        503, "The database is unavailable", AWAY, when="`Retry-After` says when to try again."
    ),
    "store_refused": ProblemKind(
        422,
        "The database refused it",
        "a rule of the database forbids it; the server's log says which",
        when="A trigger, a constraint or a limit forbids it, and would forbid it again.",
    ),
    "migration_needed": ProblemKind(
        503,
        "The database has another schema",
        "the tables are of another version",
        when="Run `rowlock migrate`, or upgrade rowlock if the schema is newer.",
    ),
    "unsupported_store": ProblemKind(500, "The database is not supported", "see the server's log"),
    "rowlock_error": ProblemKind(
        500,
        "Something went wrong",
        "see the server's log",
        when="For example, the database role of the server lacks a privilege. The log says more.",
    ),
    # Errors of HTTP.
    "http_invalid": ProblemKind(400, "The request is not HTTP"),
    "json_invalid": ProblemKind(
        400,
        "The body is not JSON",
        when="Or it is not UTF-8, is nested too deeply, or has a key twice in one object.",
    ),
    "unauthorized": ProblemKind(
        401,
        "A token is needed",
        when="None was sent, or it is unknown, expired or revoked, or the session is over.",
    ),
    "method_not_allowed": ProblemKind(
        405, "This path has no such method", when="`Allow` lists its methods."
    ),
    "request_timeout": ProblemKind(
        408,
        "The request was too slow",
        when=f"Its head took longer than {config.HTTP_HEADER_SECONDS:g} s, or its body longer than "
        f"{config.HTTP_BODY_SECONDS:g} s.",
    ),
    "count_changed": ProblemKind(409, "More jobs match than expected", when="Nothing was done."),
    "too_large": ProblemKind(
        413,
        "The body is too large",
        when=f"It has more than {_mebibytes(config.HTTP_BODY_BYTES_MAX)}, or "
        f"{_mebibytes(config.HTTP_JOB_BYTES_MAX)} for one job or heartbeats, or "
        f"{_mebibytes(config.HTTP_BATCH_BYTES_MAX)} for batches and settlements. An item of these "
        f"has at most {_mebibytes(config.HTTP_JOB_BYTES_MAX)}.",
    ),
    "unsupported_media_type": ProblemKind(
        415,
        "The body must be JSON",
        when="Its `Content-Type` must be `application/json`, and it must not be compressed.",
    ),
    "forwarded": ProblemKind(
        403,
        "An open server takes no forwarded requests",
        when="The server runs with `--open`, and the request came through a proxy. Make a token.",
    ),
    "misdirected": ProblemKind(
        421, "The host is not this server", when="A request to an open server names a foreign host."
    ),
    "too_many_requests": ProblemKind(
        429,
        "Too many requests",
        when="Too many invalid tokens came from this address, or with this id. Valid ones are "
        "still accepted. Or too many lists, counts and other expensive reads of this token wait "
        "already. Or too many of its workers ask for jobs. "
        "`Retry-After` says when to retry.",
    ),
    "head_too_large": ProblemKind(
        431,
        "The head is too large",
        when=f"It has more than {config.HTTP_HEADER_BYTES_MAX // 1024} KiB.",
    ),
    "internal_error": ProblemKind(
        500,
        "Something went wrong",
        when="The server has a bug. `detail` has the id of its log entry.",
    ),
    "overloaded": ProblemKind(
        503,
        "The server is overloaded",
        when=f"{config.HTTP_REQUESTS_MAX:,} requests are in progress, "
        f"{config.HTTP_LISTENERS_MAX} clients listen to events, or large bodies in progress have "
        f"more than {_mebibytes(config.HTTP_BODIES_BYTES_MAX)}. One tenant or token gets it "
        "earlier, once it holds more places than are free. Or the server is stopping. "
        "`Retry-After` says when to try again.",
    ),
}


class FieldProblem(msgspec.Struct, frozen=True):
    """One bad field. `field` is its path, such as `payload.items[2].price`."""

    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error. `code` is stable and safe to match on. `errors` names every bad field."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] | msgspec.UnsetType = msgspec.UNSET


class Refusal(Exception):
    """A request that is refused, with one of the codes above."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        assert code in KINDS, code
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers: dict[str, str] = dict(headers or {})

    def problem(self) -> Problem:
        kind = KINDS[self.code]
        return Problem(
            type=f"urn:rowlock:problem:{self.code}",
            title=kind.title,
            status=kind.status,
            detail=self.detail,
            code=self.code,
            errors=list(self.errors) or msgspec.UNSET,
        )

    def response(self) -> Response:
        problem = self.problem()
        headers = dict(self.headers)
        if problem.status == 503:
            headers.setdefault("retry-after", str(config.HTTP_RETRY_SECONDS))
        return Response(
            msgspec.json.encode(problem), problem.status, headers=headers, media_type=MEDIA_TYPE
        )


def refusal_of(error: RowlockError, *, within: str = "") -> Refusal:
    """The refusal for an error of the library. `within` is the path of its fields."""
    code = _code_of(error)
    kind = KINDS[code]
    if kind.detail is not None:
        return Refusal(code, kind.detail)
    return Refusal(code, str(error), errors=field_problems(error, within=within))


def _code_of(error: RowlockError) -> str:
    """The code of an error. What the database forbids the server is not the caller's fault."""
    is_ours = isinstance(error, Forbidden) and error.by_database
    return error.code if error.code in KINDS and not is_ours else "rowlock_error"


class Complaints:
    """Logs errors that callers must not see, at most once per interval and code."""

    def __init__(self) -> None:
        self._silent_until: dict[str, float] = {}

    def note(self, error: RowlockError) -> None:
        """Log the error of a refused request."""
        code = _code_of(error)
        now = time.monotonic()
        if KINDS[code].detail is not None and now >= self._silent_until.get(code, 0.0):
            self._silent_until[code] = now + config.HTTP_COMPLAINT_SECONDS
            logger.warning("refused requests: %s", error)


def field_problems(error: RowlockError, *, within: str = "") -> list[FieldProblem]:
    """The fields that an error names, by their paths in the request."""
    if isinstance(error, PayloadInvalid):
        payload = f"{within}payload"
        return [FieldProblem(_below(payload, each), each.message) for each in error.errors]
    if isinstance(error, OptionInvalid):
        message = str(error).removeprefix(f"{error.option}: ")
        return [FieldProblem(f"{within}{error.option}", message)]
    return []


def _below(payload: str, error: FieldError) -> str:
    if error.field == "payload":
        return payload
    return f"{payload}{error.field}" if error.field.startswith("[") else f"{payload}.{error.field}"


def unexpected(error: Exception) -> Refusal:
    """The refusal for a bug of ours. The log has the error, under the id in the answer."""
    incident = new_id()
    logger.error("incident %s", incident, exc_info=error)
    return Refusal("internal_error", f"the server failed; its log has incident {incident}")

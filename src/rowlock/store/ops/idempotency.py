"""First answers: a request that is sent again with its key gets the answer of the first one.

1. The note of a request, its jobs and its answer are written in one transaction. So a request that
   is answered has enqueued its jobs, and one that failed, or whose process died, has left nothing.
2. The note comes first: a second request with the same key waits for the end of the first one
   before it enqueues anything. (A note that is committed earlier would outlive a process that dies,
   and somebody would have to decide when to give it up.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from rowlock import config
from rowlock.store.steps import Begin, Op, Statement, Steps, writing

T = TypeVar("T")
_KEPT: Final = {"kept": int(config.IDEMPOTENCY_KEEP_SECONDS) * config.SECOND_US}


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key: the digests of its tenant and key, and of its content."""

    id: str
    content: str

    @classmethod
    def of(cls, key: str, *, tenant: str | None, content: bytes) -> KeyedRequest:
        """Two tenants may use the same key."""
        return cls(_digest(f"{tenant or ''}\0{key}".encode()), _digest(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """What was stored as the answer to an earlier request with the same key and content."""

    text: str


@dataclass(frozen=True, slots=True)
class KeyReused:
    """Nothing was enqueued: the key was used before, with another content."""


def enqueue_once(
    inner: Op[T], request: KeyedRequest, *, answer: Callable[[T], str]
) -> Op[T | FirstAnswer | KeyReused]:
    """Enqueue, unless the same request was answered within `config.IDEMPOTENCY_KEEP_SECONDS`.

    Args:
        inner: The enqueue of jobs, or of a workflow.
        answer: Encodes what a repeated request is answered with.
    """
    values = {"id": request.id, "request": request.content}

    def steps() -> Steps[T | FirstAnswer | KeyReused]:
        yield Begin()
        if not (yield Statement("answer_claim", {**values, **_KEPT})):
            # It is there: the claim has locked it.
            ((content, text),) = yield Statement("answer_find", {"id": request.id})
            return FirstAnswer(text) if content == request.content else KeyReused()
        made = yield from inner.start()
        yield Statement("answer_write", {"id": request.id, "answer": answer(made)})
        return made

    # Safe to repeat: if the first try was committed, its own answer is found.
    return writing("enqueue_once", steps, repeat=steps)

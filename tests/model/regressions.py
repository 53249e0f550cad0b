"""Programs that once found a difference, by what went wrong then."""

from __future__ import annotations

from tests.model.model import KEPT, SECOND, New, Rules
from tests.model.program import (
    Adopt,
    Advance,
    Ask,
    Cancel,
    Claim,
    End,
    Enqueue,
    Program,
    Recover,
    Retry,
    Settle,
)

NOT_KEPT = Rules(keep=0)
_one = Enqueue((Ask(New()),))
_claim = Claim("w1", ("q",))
_succeed = Settle((End(0, "succeed"),))

REGRESSIONS: dict[str, Program] = {
    "of two with one id in a call, the second was stored": [
        Enqueue((Ask(New(payload=1)), Ask(New(payload=2, tenant="x"), resend=0))),
    ],
    "a resend by id was answered by another job with its key": [
        Enqueue((Ask(New(key="k")),)),
        _claim,
        _succeed,
        Enqueue((Ask(New(key="k")),)),
        Enqueue((Ask(New(key="k"), resend=0),)),
    ],
    "a cancel forgot that the last lease had been taken away": [
        _one,
        _claim,
        Advance(31),
        Recover(),
        Cancel(0),
        _succeed,
    ],
    "a retry forgot that the last lease had been taken away": [
        _one,
        _claim,
        Adopt(("q",), "park", 0),
        Retry(0),
        _succeed,
    ],
    "an id that was forgotten and used again held its old key": [
        Enqueue((Ask(New(rules=NOT_KEPT)),)),
        _claim,
        _succeed,
        Advance(901),
        Enqueue((Ask(New(key="k", hold=300 * SECOND, rules=NOT_KEPT), resend=0),)),
        _claim,
        _succeed,
        Enqueue((Ask(New(key="k")),)),
    ],
    "a row that was not kept forgot that its lease had been taken away": [
        Enqueue((Ask(New(max_attempts=1, rules=Rules(keep=0, keep_dead=0))),)),
        _claim,
        Advance(31),
        Recover(),
        _succeed,
    ],
    "a crash of a job that was to be cancelled was not counted": [
        _one,
        _claim,
        Cancel(0),
        Settle((End(0, "crash"),)),
    ],
    "a tenant named twice was served half": [
        Enqueue((Ask(New(tenant="x")), Ask(New(tenant="x")))),
        Claim("w1", ("q",), tenants=("x", "x"), limit=2),
    ],
    "follow-up jobs of a run that failed were enqueued": [
        _one,
        _claim,
        Settle((End(0, "fail", follow_ups=(Ask(New(key="k", hold=KEPT)),)),)),
    ],
}

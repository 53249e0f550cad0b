"""Stored rows become jobs, also when they were damaged."""

from __future__ import annotations

import pytest

from rowlock.columns import JobRow
from rowlock.job import (
    JobError,
    JobState,
    Policy,
    decode_errors,
    decode_policy,
    encode_errors,
    job_of,
    listed_job_of,
    state_of,
)
from rowlock.store.ops.enqueue import _row_of
from rowlock.store.options import new_job


def row(**columns) -> JobRow:
    made = _row_of(new_job(kind="task", payload="{}"), run_at=10, created_at=5)
    return made._replace(**columns)


@pytest.mark.parametrize("garbage", ["", "{", "[]", '"x"', '{"keep":"no"}', "\x00", "[[1]]"])
@pytest.mark.parametrize(
    "column", ["payload", "policy", "errors", "progress", "tags", "meta", "result"]
)
def test_a_damaged_column_does_not_hide_the_job(column, garbage):
    """Whatever text a column holds, the job can be shown and its policy applied."""
    job = job_of(row(**{column: garbage}), now=20)

    assert job.state == JobState.READY
    assert decode_policy(garbage).max_crashes == 3
    assert isinstance(decode_errors(garbage), list)


@pytest.mark.parametrize("garbage", ["", "{", "[]", '"x"', "\x00", '[{"attempt":', "[[1]]"])
def test_damaged_errors_do_not_hide_a_listed_job(garbage):
    """A list shows the last error, and reads only the end of them."""
    assert listed_job_of(row(errors=garbage), now=20).id


def test_a_listed_job_has_its_last_error_and_no_payload():
    """What was not read is not there; asking for it says how to get it."""
    errors = encode_errors([JobError(1, 5, "A", 'first {"attempt":'), JobError(2, 6, "B", "last")])
    whole = listed_job_of(row(errors=errors), now=20)
    cut = listed_job_of(row(errors=errors[30:]), now=20)

    assert whole.last_error == cut.last_error == "B: last"
    assert listed_job_of(row(), now=20).last_error is None
    for field in ("payload", "result", "meta", "errors"):
        with pytest.raises(AttributeError, match=f"{field}: .*full=True"):
            getattr(whole, field)


@pytest.mark.parametrize(
    ("columns", "now", "state"),
    [
        ({"run_at": 10}, 9, JobState.SCHEDULED),
        ({"run_at": 10}, 10, JobState.READY),
        ({"run_at": 10, "attempt": 1}, 9, JobState.RETRYING),
        ({"run_at": 10, "attempt": 1}, 10, JobState.READY),
        ({"run_at": 10, "lease_expires_at": 5}, 20, JobState.RUNNING),
        ({"state": "dead"}, 20, JobState.DEAD),
    ],
)
def test_the_state_is_told_by_lease_time_and_attempt(columns, now, state):
    """Three of the states are one in the table, and differ by time and attempt."""
    assert state_of(row(**columns), now=now) == state


def test_a_policy_is_stored_without_what_is_the_default():
    """It lies in every row of a job's life; what was said in so many words counts the same."""
    day = 24 * 60 * 60 * 1_000_000

    assert Policy(keep=day, keep_dead=30 * day).encoded() == "{}"
    assert Policy(keep=None, max_crashes=1).encoded() == '{"keep":null,"max_crashes":1}'
    assert decode_policy(Policy(keep=None, max_crashes=1).encoded()) == Policy(
        keep=None, max_crashes=1
    )


def test_a_job_is_shown_in_one_line():
    """By its id, kind and state, and without its payload, which may be secret."""
    secret = row(id="1", payload='{"card":"4711"}')

    assert repr(job_of(secret, now=20)) == "Job(id='1', kind='task', state='ready')"
    assert repr(listed_job_of(secret, now=20)) == "ListedJob(id='1', kind='task', state='ready')"

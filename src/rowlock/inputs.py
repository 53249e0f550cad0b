"""Inputs: results of other jobs that a run gets as arguments, beside its payload.

They are stored as ids, never in the payload, so that no payload can name a job.

The stored form is a JSON object, by the name of the argument: a shape, and runs of ids. Most ids of
a workflow follow each other, so that the results of 10,000 jobs are one run.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from rowlock import config
from rowlock.columns import JobRow
from rowlock.job import JobState
from rowlock.lifecycle import Failed

# The error types of jobs that can't run because of the results that they should get.
RESULT_MISSING: Final = "ResultMissing"
RESULTS_TOO_LARGE: Final = "ResultsTooLarge"


class Input(ABC):
    """Stands for results of jobs that have not run yet, where a job takes them."""

    __slots__ = ()

    @abstractmethod
    def joined(self, inputs: Sequence[Input]) -> Input:
        """What stands for a list of these."""


class Shape(IntEnum):
    """What an argument is made of. The values are stored."""

    ONE = 0
    LIST = 1
    ONE_OR_NONE = 2
    """None, if the job did not succeed."""
    LIST_OR_NONE = 3
    """With None for each job that did not succeed."""

    @property
    def is_list(self) -> bool:
        return self in (Shape.LIST, Shape.LIST_OR_NONE)

    @property
    def may_be_none(self) -> bool:
        return self in (Shape.ONE_OR_NONE, Shape.LIST_OR_NONE)


class StoredInput(msgspec.Struct, frozen=True, array_like=True):
    """An argument: its shape, and the jobs, as runs of a first id and a number."""

    shape: Shape
    runs: list[tuple[str, int]]

    @property
    def ids(self) -> Iterator[str]:
        """The ids of the jobs, in order."""
        for first, number in self.runs:
            start = uuid.UUID(first).int
            for place in range(number):
                yield first if place == 0 else str(uuid.UUID(int=start + place))


_decode = msgspec.json.Decoder(dict[str, StoredInput]).decode
_encode = msgspec.json.Encoder().encode


def stored_input(shape: Shape, ids: Sequence[str]) -> StoredInput:
    """The stored form of an argument."""
    runs: list[tuple[str, int]] = []
    following = -1
    for id in ids:
        number = uuid.UUID(id).int
        if number == following and runs:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((id, 1))
        following = number + 1
    return StoredInput(shape, runs)


def stored_inputs(inputs: Mapping[str, StoredInput]) -> str:
    """The stored form of all arguments of a job."""
    return _encode(inputs).decode()


def renamed_inputs(stored: str, instead: Mapping[str, str]) -> str:
    """The same, with other jobs instead of some."""
    inputs = _decode(stored)
    return stored_inputs(
        {
            name: stored_input(each.shape, [instead.get(id, id) for id in each.ids])
            for name, each in inputs.items()
        }
    )


def wanted_results(stored: str) -> list[str]:
    """The ids of the jobs whose results are arguments of a job."""
    return sorted({id for each in _decode(stored).values() for id in each.ids})


def completed(row: JobRow, results: Mapping[str, tuple[str, str | None]]) -> JobRow | Failed:
    """The row with its results in the payload, which are JSON texts already."""
    assert row.inputs is not None
    fields: list[str] = []
    for name, each in _decode(row.inputs).items():
        values: list[str] = []
        for id in each.ids:
            state, result = results.get(id, (None, None))
            if state == JobState.SUCCEEDED:
                values.append("null" if result is None else result)
            elif each.shape.may_be_none:
                values.append("null")
            else:
                said = f"the result of job {id}, for {name!r}, is not kept any more"
                return Failed(RESULT_MISSING, said, permanent=True)
        value = f"[{','.join(values)}]" if each.shape.is_list else values[0]
        fields.append(f"{_encode(name).decode()}:{value}")
    inner = row.payload.strip()[1:-1]
    payload = "{" + ",".join([*fields, *([inner] if inner.strip() else [])]) + "}"
    return row._replace(payload=payload)


def too_large(size: int) -> Failed:
    said = (
        f"the results that it should get have {size} bytes together, more than the "
        f"{config.INPUTS_BYTES_MAX} that are allowed; pass references to where they are stored"
    )
    return Failed(RESULTS_TOO_LARGE, said, permanent=True)

"""Read the results that claimed jobs get as arguments, along the edges of their workflows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rowlock import config
from rowlock.inputs import completed, too_large, wanted_results
from rowlock.job import Lease
from rowlock.lifecycle import Failed
from rowlock.store.steps import Statement, Steps


class Unusable(NamedTuple):
    """A claimed job that can't run, because of the results that it should get."""

    lease: Lease
    outcome: Failed


def read_inputs(leases: Sequence[Lease]) -> Steps[list[Unusable]]:
    """Put the results that jobs get into the payloads of their leases. Return those that can't run.

    Bounded by bytes: of one job, and of what is read at a time.
    """
    rows = {lease.id: lease.row for lease in leases if lease.row is not None and lease.row.inputs}
    if not rows:
        return []
    sizes = {row[0]: int(row[1]) for row in (yield Statement("result_sizes", {"ids": [*rows]}))}
    large = {id for id, size in sizes.items() if size > config.INPUTS_BYTES_MAX}
    unusable: list[Unusable] = []
    results: dict[str, dict[str, tuple[str, str | None]]] = {id: {} for id in rows}
    for part in _parts([id for id in rows if id not in large], sizes):
        for child, parent, state, result in (yield Statement("results", {"ids": part})):
            results[child][parent] = (state, result)
    for id in sorted(large):
        # It may not get the results of all that it waited for, which is seldom asked.
        values = {"ids": [id], "parents": wanted_results(rows[id].inputs or "{}")}
        sizes[id] = sum(int(row[1]) for row in (yield Statement("result_sizes/some", values)))
        if sizes[id] <= config.INPUTS_BYTES_MAX:
            large.discard(id)
            for _, parent, state, result in (yield Statement("results/some", values)):
                results[id][parent] = (state, result)
    for lease in leases:
        row = rows.get(lease.id)
        if row is None:
            continue
        if lease.id in large:
            unusable.append(Unusable(lease, too_large(sizes[lease.id])))
            continue
        whole = completed(row, results[lease.id])
        if isinstance(whole, Failed):
            unusable.append(Unusable(lease, whole))
        else:
            lease.row = whole
    return unusable


def _parts(ids: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    part: list[str] = []
    total = 0
    for id in ids:
        size = sizes.get(id, 0)
        if part and total + size > config.INPUTS_BYTES_MAX:
            yield part
            part, total = [], 0
        part.append(id)
        total += size
    if part:
        yield part

"""The functions of the script for RQ: in a module of their own, as RQ wants them."""

from __future__ import annotations

from collections import Counter
from typing import Any

runs: Counter[str] = Counter()


def add(x: Any, y: Any = 1) -> Any:
    return x + y


def words(text: str, *, upper: bool = False) -> dict[str, Any]:
    return {"words": (text.upper() if upper else text).split()}


def fails(x: int) -> None:
    runs["fails"] += 1
    raise ValueError(f"bad {x}")


def third_time() -> int:
    runs["third_time"] += 1
    if runs["third_time"] < 3:
        raise ConnectionError("away")
    return runs["third_time"]


def never() -> None:
    runs["never"] += 1
    raise ConnectionError("always away")


def own_id() -> list[Any]:
    job = CURRENT[0]()
    return [job.id, job.meta, job.origin, job.func_name]


def saves(count: int) -> str:
    job = CURRENT[0]()
    for done in range(count):
        job.meta["done"] = done + 1
        job.save_meta()
    return "saved"


def rest(first: Any, *others: Any, **named: Any) -> list[Any]:
    return [first, list(others), named]


# Whose `get_current_job` it is: the script's.
CURRENT: list[Any] = []

"""What is read from a metrics endpoint."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


class Asking:
    """What a worker's port answers."""

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)

    def status(self, path: str) -> int:
        try:
            return self._client.get(path).status_code
        except httpx.TransportError:
            return 0

    def number(self, metric: str, **labels: str) -> float:
        return self.number_or_none(metric, **labels) or 0

    def number_or_none(self, metric: str, **labels: str) -> float | None:
        answer = self._client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        return samples(answer.content).get((metric, tuple(sorted(labels.items()))))

    def finished(self, kind: str, outcome: str) -> float:
        labels = {"queue": "default", "kind": kind, "outcome": outcome}
        return self.number("rowlock_jobs_finished_total", **labels)

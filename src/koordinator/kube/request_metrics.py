"""What a client counts of its requests, under the names that every Kubernetes program in Go has for it."""

from __future__ import annotations

from typing import Final

from koordinator.base.metrics import Metrics
from koordinator.base.tallies import Count, Samples

_DURATION_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_NO_ANSWER: Final = "<error>"


class RequestMetrics:
    """For one API server, whose ``host`` (with its port) all samples carry."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._host = host
        self._results = metrics.tally(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
        )
        self._durations = metrics.distribution(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ("verb", "host"),
            buckets=_DURATION_BUCKETS,
        )
        self._counts: dict[tuple[str, int], Count] = {}
        self._samples: dict[str, Samples] = {}

    def attempted(self, method: str, status: int = 0) -> None:
        """One request got an answer of this status, or none (0). Each attempt counts."""
        count = self._counts.get((method, status))
        if count is None:
            code = str(status) if status else _NO_ANSWER
            count = self._counts[method, status] = self._results.labels(code, method, self._host)
        count.value += 1

    def took(self, method: str, seconds: float) -> None:
        """One call ended, well or not, with all of its attempts and pauses."""
        samples = self._samples.get(method)
        if samples is None:
            samples = self._samples[method] = self._durations.labels(method, self._host)
        samples.observe(seconds)

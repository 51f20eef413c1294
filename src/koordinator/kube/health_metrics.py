"""What came of health checks: upstream's ``/metrics/slis``, for those who watch how well a program does its work."""

from __future__ import annotations

from koordinator.base.metrics import Metrics


class HealthMetrics:
    """In a registry of its own, which may be scraped often: it has a few series for each check."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._last = self.metrics.gauge(
            "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck.",
            ("name", "type"),
            stability="STABLE",
        )
        self._results = self.metrics.counter(
            "kubernetes_healthchecks_total",
            "This metric records the results of all healthcheck.",
            ("name", "type", "status"),
            stability="STABLE",
        )

    def checked(self, name: str, path: str, *, healthy: bool) -> None:
        """One check was made, for one question to ``path``."""
        self._last.labels(name, path).set(healthy)
        self._results.labels(name, path, "success" if healthy else "error").inc()

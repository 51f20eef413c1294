"""Health checks by name and path, and their results: upstream's ``/healthz``, ``/livez``, ``/readyz`` and
``/metrics/slis``, without the HTTP server (``koordinator.kube.serving``)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from koordinator.base.metrics import Metrics

Check = Callable[[], str | Awaitable[str]]
"""Returns an error message, or "" if healthy; an exception is a failure too."""

HEALTH_PATHS: Final = ("healthz", "livez", "readyz")


@dataclass(slots=True)
class HealthChecks:
    """Named checks by path: ``livez`` (for restarts), ``readyz`` (for traffic) and ``healthz`` (upstream's)."""

    checks: dict[str, dict[str, Check]] = field(
        default_factory=lambda: {path: {"ping": _ping} for path in HEALTH_PATHS}
    )

    def add(self, name: str, check: Check, *paths: str) -> None:
        """Add a check to these paths (without any: to all); ValueError if a path has a check of that name."""
        for path in paths or HEALTH_PATHS:
            if name in self.checks[path]:
                raise ValueError(f"health check {name!r} exists on /{path}")
            self.checks[path][name] = check

    async def failure(self, path: str, name: str) -> str:
        """Return the error message of one check; "" if it passes."""
        try:
            result = self.checks[path][name]()
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            return f"{type(error).__name__}: {error}"


class HealthMetrics:
    """In a registry of its own, which may be scraped often: it has only a few series per check."""

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
        """Record the result of one check for one request to ``path``."""
        self._last.labels(name, path).set(healthy)
        self._results.labels(name, path, "success" if healthy else "error").inc()


def _ping() -> str:
    return ""

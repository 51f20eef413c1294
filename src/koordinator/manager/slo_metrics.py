"""What the SLO controllers count, under the names of the original (pkg/slo-controller/metrics).

Its counters do not end in ``_total``, which this project's counters must: they are gauges here that only grow.
"""

from __future__ import annotations

from koordinator.base.metrics import Metrics

_SUCCEEDED = "succeeded"
_FAILED = "failed"


class Outcomes:
    """How often something worked and how often it did not, by what was done."""

    def __init__(self, metrics: Metrics, name: str, help_text: str) -> None:
        self._count = metrics.gauge(f"slo_controller_{name}", help_text, ("status", "reason"))

    def succeeded(self, reason: str) -> None:
        self._count.labels(_SUCCEEDED, reason).inc()

    def failed(self, reason: str) -> None:
        self._count.labels(_FAILED, reason).inc()


class SLOMetrics:
    """Of the controllers ``nodemetric`` and ``nodeslo``."""

    def __init__(self, metrics: Metrics, kind: str) -> None:
        """``kind`` is ``nodemetric`` or ``nodeslo``."""
        self.reconciled = Outcomes(metrics, f"{kind}_reconcile_count", f"{kind} objects seen to, by the write")
        self.parsed = Outcomes(metrics, f"{kind}_spec_parse_count", f"parts of {kind} specs that were made, by part")

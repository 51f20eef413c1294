"""What the classes of pods had and used, as far back as a Prometheus has data of koord-manager or of koordlets.

The expressions are those of the dashboard *what does it earn?*, so that the page and Grafana show the same.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from koordinator.api.manifests.monitoring.colocation_panels import (
    BATCH_ALLOCATED,
    BATCH_OFFERED,
    BATCH_USED,
    ONLINE_ALLOCATED,
    ONLINE_USED,
)
from koordinator.cli.page.history import HistoryError, Span, in_steps
from koordinator.kube.prometheus import PrometheusError, PrometheusServer

_CORES: Final = {
    "online_allocated": ONLINE_ALLOCATED,
    "online_measured": ONLINE_USED,
    "batch_allocated": BATCH_ALLOCATED,
    "batch_measured": BATCH_USED,
    "batch_reclaimable": BATCH_OFFERED,
}
"""The series of the page, by the expression of their cores."""
_MILLI: Final = 1000


class PrometheusHistory:
    """Reads the same document as ``History``, and keeps nothing."""

    def __init__(self, server: PrometheusServer) -> None:
        self._server = server

    async def read(self, span: Span, now: float) -> dict[str, Any]:
        """See PastUsage."""
        end = int(now) // span.step * span.step
        start = end - span.seconds
        try:
            results = await asyncio.gather(
                *(self._server.query_range(each, start, end, span.step) for each in _CORES.values())
            )
        except PrometheusError as error:
            raise HistoryError(f"the history cannot be read: {error}") from error
        return in_steps(
            (
                (name, round(moment.timestamp()), value * _MILLI)
                for name, found in zip(_CORES, results, strict=True)
                for series in found
                for moment, value in series.samples
            ),
            span.step,
        )

"""The metric of the original, under its name."""

from __future__ import annotations

from typing import Literal

from koordinator.api.pod import Pod
from koordinator.base.metrics import Metrics


class EvictionMetrics:
    """Counts evictions by how they went and who wanted them.

    The original's counter has no ``_total`` at the end of its name, which the exposition of counters would add: so its
    type is that of a gauge, which never goes down.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._evicted = metrics.gauge(
            "descheduler_pods_evicted",
            "Number of evicted pods, by the result, by the strategy, by the namespace, by the node name. 'error' "
            "result means a pod could not be evicted",
            ("result", "strategy", "namespace", "node"),
        )

    def count(self, result: Literal["success", "error"], plugin: str, pod: Pod) -> None:
        self._evicted.labels(result, plugin, pod.metadata.namespace, pod.spec.node_name).inc()

"""The metric of the weights that quotas were given because they had none; gone with its quota."""

from __future__ import annotations

from prometheus_client import Gauge

from koordinator.api.pod import ResourceList


class RecordedWeights:
    """``gauge`` has the labels quota and resource."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._resources: dict[str, set[str]] = {}

    def record(self, quota: str, weights: ResourceList) -> None:
        self.forget(quota)
        for resource, amount in weights.items():
            self._gauge.labels(quota, resource).set(amount.value)
        self._resources[quota] = set(weights)

    def forget(self, quota: str) -> None:
        for resource in self._resources.pop(quota, ()):
            self._gauge.remove(quota, resource)

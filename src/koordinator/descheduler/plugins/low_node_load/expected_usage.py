"""What a node is expected to use, by the Recommendations of its pods: what was measured, and what the workload adds
that adds most when its pods on the node reach the peak that it has had before.

The replicas of a workload reach their peak together, different workloads hardly ever do: with the peaks of all pods
added up, every node would be full. Expected amounts are further resources of a node, beside those that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from koordinator.api.pod import Pod, ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.api.usable_amounts import bounded
from koordinator.model.recommendations import RecommendationIndex, expected_usage

Ints = npt.NDArray[np.int64]
PodKey = tuple[str, str]
"""Namespace and name."""
_EXPECTED: Final = "expected "
_FORMATS: Final = {CPU: Format.DECIMAL_SI, MEMORY: Format.BINARY_SI}


def pod_key(pod: Pod) -> PodKey:
    return pod.metadata.namespace, pod.metadata.name


def expected_name(resource: str) -> str:
    """The name under which it counts what is expected of a resource."""
    return f"{_EXPECTED}{resource}"


def is_expected(name: str) -> bool:
    return name.startswith(_EXPECTED)


def measured_name(name: str) -> str:
    """The resource that a name is about."""
    return name.removeprefix(_EXPECTED)


class Raise(NamedTuple):
    """By how much the usage of a pod is expected to rise."""

    source: str
    """The Recommendation that says so."""
    more: ResourceList


def expected_raises(
    measured: Mapping[PodKey, ResourceList], pods: Iterable[Pod], recommendations: RecommendationIndex, now: datetime
) -> Mapping[PodKey, Raise]:
    """Of those of ``pods`` of which more is expected than was measured; of one that nobody has measured yet, all."""
    raises = dict[PodKey, Raise]()
    for pod in pods:
        found = recommendations.find(pod.metadata)
        if found is None or found.unusable(now):
            continue
        used: ResourceList = measured.get(pod_key(pod), {})
        more = {
            name: Quantity(missing, _FORMATS[name])
            for name, amounts in expected_usage(pod, found).items()
            if (missing := _nanos(name, sum(amounts.values())) - (used[name].nanos if name in used else 0)) > 0
        }
        if more:
            raises[pod_key(pod)] = Raise(found.key, more)
    return raises


def _nanos(name: str, amount: int) -> int:
    """Of milli-CPU, or of bytes."""
    return bounded(amount) * (10**6 if name == CPU else 10**9)


class Contingencies:
    """Of one node: by how much each workload may raise its usage. ``raises`` are of pods, each with its workload's
    Recommendation and an amount for each of ``width`` columns."""

    def __init__(self, raises: Mapping[PodKey, tuple[str, Ints]], width: int) -> None:
        self._raises = dict(raises)
        self._nothing = np.zeros(width, dtype=np.int64)
        self._sums: dict[str, Ints] = {}
        for source, more in self._raises.values():
            self._sums[source] = self._sums.get(source, self._nothing) + more

    @property
    def most(self) -> Ints:
        """By column, what the workload adds that adds most."""
        return self._most(self._sums)

    def of(self, pod: PodKey) -> Ints:
        """What the pod may add wherever it is."""
        return self._raises[pod][1] if pod in self._raises else self._nothing

    def relief(self, pod: PodKey) -> Ints:
        """By how much less ``most`` is without the pod."""
        if pod not in self._raises:
            return self._nothing
        source, more = self._raises[pod]
        less: Ints = self.most - self._most({**self._sums, source: self._sums[source] - more})
        return less

    def take(self, pod: PodKey) -> Ints:
        """The pod has left; returns its relief."""
        relief = self.relief(pod)
        if pod in self._raises:
            source, more = self._raises.pop(pod)
            self._sums[source] = self._sums[source] - more
        return relief

    def source(self, column: int) -> str:
        """The Recommendation of the workload that adds most; empty if none adds anything."""
        found = max(self._sums, key=lambda name: (self._sums[name][column], name), default="")
        return found if found and self._sums[found][column] else ""

    def _most(self, sums: Mapping[str, Ints]) -> Ints:
        most: Ints = np.max([self._nothing, *sums.values()], axis=0)
        return most


def raised_text(usage: ResourceList, raised: Raise) -> str:
    """What a pod is expected to use, and by which Recommendation."""
    sums = {
        name: Quantity(more.nanos + (usage[name].nanos if name in usage else 0), more.format)
        for name, more in raised.more.items()
    }
    amounts = " and ".join(f"{name} {quantity}" for name, quantity in sums.items())
    return f"by Recommendation {raised.source}, the pod is expected to use {amounts}"

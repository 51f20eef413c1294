"""What a pod takes from its quota, what of a quota is used, and whether another pod fits.

Only the quota of the pod counts, not those above it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api.annotations import QUOTA_ADMISSION, QUOTA_CHILD_REQUEST
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.pod import Pod, ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    EXTENDED_CPUS,
    EXTENDED_MEMORIES,
    GPU,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    MEMORY,
    NVIDIA_GPU,
)
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from koordinator.model.pod_requests import pod_requests
from koordinator.model.quota_tree.annotation_values import read_amounts

_OF_PODS: Final = frozenset(
    {
        CPU,
        MEMORY,
        EPHEMERAL_STORAGE,
        *(f"requests.{name}" for name in (CPU, MEMORY, EPHEMERAL_STORAGE)),
        *EXTENDED_CPUS,
        *EXTENDED_MEMORIES,
        GPU,
        NVIDIA_GPU,
        GPU_SHARED,
        GPU_MEMORY_RATIO,
    }
)
"""A quota whose max names none of these is not about pods."""
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Account:
    """Immutable: with another pod it is another account."""

    key: str
    counted: frozenset[str]
    """The resources of max; pods are counted in these alone."""
    used: ResourceList
    limit: ResourceList

    @classmethod
    def of(cls, quota: ElasticQuota) -> Account:
        """Raises QuotaRefused for annotations that cannot be read."""
        return cls(
            key=quota.metadata.key,
            counted=frozenset(quota.spec.max),
            used=_annotated(quota, QUOTA_CHILD_REQUEST),
            limit=_annotated(quota, QUOTA_ADMISSION) or quota.spec.max,
        )

    def with_pod(self, usage: ResourceList) -> Account:
        """After one more pod; the same account if nothing of it counts. Raises QuotaRefused if it does not fit."""
        counted = {name: amount for name, amount in usage.items() if name in self.counted and amount}
        if not counted or not self.counted & _OF_PODS:
            return self
        used = {**self.used, **{name: _sum(self.used.get(name), amount) for name, amount in counted.items()}}
        exceeded = sorted(name for name in counted if name in self.limit and self.limit[name] < used[name])
        if exceeded:
            requested, limited = _shown(counted, exceeded), _shown(self.limit, exceeded)
            raise QuotaRefused(
                f"exceeded quota: {self.key}, requested: {requested}, "
                f"used: {_shown(self.used, exceeded)}, limited: {limited}"
            )
        return dataclasses.replace(self, used=used)


def _annotated(quota: ElasticQuota, annotation: str) -> ResourceList:
    try:
        return read_amounts(quota.metadata.annotations.get(annotation, ""))
    except DecodeError as error:
        raise QuotaRefused(f"elastic quota {quota.metadata.key}: annotation {annotation}: {error}") from error


def _sum(left: Quantity | None, right: Quantity) -> Quantity:
    """Written in the units of the first, as client-go does."""
    if not left:
        return right
    return Quantity(left.nanos + right.nanos, left.format)


def _shown(resources: ResourceList, names: list[str]) -> str:
    return ",".join(f"{name}={resources[name]}" for name in names if name in resources)


def pod_usage(pod: Pod) -> ResourceList:
    """Its requests; nothing for a pod that has ended."""
    if pod.status.phase in _ENDED:
        return {}
    requested = _requested(pod)
    requests = pod_requests(pod, resized=False)
    return {name: _written(nanos, requested.get(name, ())) for name, nanos in requests.items() if nanos}


def _requested(pod: Pod) -> dict[str, list[Quantity]]:
    """All that the pod says of each resource."""
    spec = pod.spec
    parts = [each.resources.requests for each in (*spec.containers, *spec.init_containers)]
    if spec.resources is not None:
        parts.insert(0, spec.resources.requests)
    requested: dict[str, list[Quantity]] = {}
    for part in (*parts, spec.overhead):
        for name, amount in part.items():
            requested.setdefault(name, []).append(amount)
    return requested


def _written(nanos: int, requested: Sequence[Quantity]) -> Quantity:
    """As the pod writes it; a sum in the units of the first container that requests any."""
    if len(requested) == 1 and requested[0].nanos == nanos:
        return requested[0]
    return Quantity(nanos, next((amount.format for amount in requested if amount), Format.DECIMAL_SI))

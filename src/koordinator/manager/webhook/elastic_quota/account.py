"""What of a quota is used up, and whether another pod still fits: only this quota counts, not those above it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from koordinator.api.annotations import QUOTA_ADMISSION, QUOTA_CHILD_REQUEST
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    EPHEMERAL_STORAGE,
    GPU,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    MEMORY,
    MID_CPU,
    MID_MEMORY,
    NVIDIA_GPU,
)
from koordinator.manager.webhook.elastic_quota.refusal import QuotaRefused
from koordinator.model.quota_tree.annotation_values import read_amounts

_OF_PODS: Final = frozenset(
    {
        CPU,
        MEMORY,
        EPHEMERAL_STORAGE,
        *(f"requests.{name}" for name in (CPU, MEMORY, EPHEMERAL_STORAGE)),
        BATCH_CPU,
        BATCH_MEMORY,
        MID_CPU,
        MID_MEMORY,
        GPU,
        NVIDIA_GPU,
        GPU_SHARED,
        GPU_MEMORY_RATIO,
    }
)
"""A quota whose max names none of these is not about pods."""


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
        return replace(self, used=used)


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

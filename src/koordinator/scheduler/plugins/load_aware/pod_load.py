"""What pods add to the load of a node, as measured or as estimated from their requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from koordinator.api import annotations as keys
from koordinator.api.codec import decode_or
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, extended_name
from koordinator.model.pod_requests import canonical, pod_limits, pod_requests
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import Floats
from koordinator.scheduler.plugins.load_aware.settings import Settings, Vector

_DEFAULT_CPU: Final = 250
_DEFAULT_MEMORY: Final = 200 * 2**20
_WITHOUT_REQUEST: Final = {
    CPU: _DEFAULT_CPU,
    BATCH_CPU: _DEFAULT_CPU,
    MEMORY: _DEFAULT_MEMORY,
    BATCH_MEMORY: _DEFAULT_MEMORY,
}


def estimate_pod(pod: Pod, factors: Mapping[str, int], priority: PriorityClass) -> dict[str, int]:
    """Expected usage of a pod of class ``priority`` under the names of ``factors`` (percent of what the pod may use, at
    most its limit).

    CPU is in milli-CPU, the rest in whole units. The amounts that a pod of the batch, mid or free class requests are
    named batch-cpu, mid-memory and so on; the estimate is named cpu and memory, since these are what nodes run out of.
    Resources that a class has no name for are omitted. (Original: the default estimator of LoadAwareScheduling.)
    """
    requests, limits = pod_requests(pod, resized=False), pod_limits(pod)
    estimate: dict[str, int] = {}
    for resource, factor in factors.items():
        name = extended_name(resource, priority)
        if not name:
            continue
        # Batch and mid CPU are counted in milli-CPU as whole units.
        limit_nanos, request_nanos = limits.get(name, 0), requests.get(name, 0)
        limit = canonical(name, limit_nanos)
        amount = limit if request_nanos <= limit_nanos else canonical(name, request_nanos)
        if amount == 0:
            estimate[resource] = _WITHOUT_REQUEST.get(name, 0)
            continue
        expected = (amount * factor + 50) // 100
        estimate[resource] = min(expected, limit) if limit > 0 else expected
    return estimate


_SECONDS: Final = re.compile(r"[+]?[0-9]{1,30}|-0{1,30}")
_MOST_INT64: Final = 2**63 - 1


def own_factors(pod: Pod) -> dict[str, int]:
    """Percent by resource, from the pod's annotation; values below 0, by which a pod would evade the filter, are
    dropped."""
    text = pod.metadata.annotations.get(keys.LOAD_ESTIMATED_SCALING_FACTORS)
    factors: dict[str, int] = decode_or(text, dict[str, int], {})
    return {name: factor for name, factor in factors.items() if 0 <= factor <= _MOST_INT64}


def seconds_or(text: str | None, default: int) -> int:
    """An annotation's whole seconds, or ``default`` if it is no number of at least 0."""
    if text is None or not _SECONDS.fullmatch(text):
        return default
    seconds = int(text)
    return seconds if seconds <= _MOST_INT64 else default


def became_true(pod: Pod, condition_type: str) -> datetime | None:
    """Since when a condition of the pod is True; None while it is not."""
    for condition in pod.status.conditions:
        if condition.type == condition_type and condition.status == "True":
            return condition.last_transition_time
    return None


def is_of_daemon_set(pod: Pod) -> bool:
    """Whether a DaemonSet owns the pod, which then belongs on its node however busy that is."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


OF_NODE: Final = 0
"""Index of what is added to the measured usage of the node."""
OF_PROD: Final = 1
"""Index of what pods of the prod class use and are expected to use."""
OF_ESTIMATES: Final = 2
"""Index of what all pods are expected to use, measured or not."""


class Share(msgspec.Struct, frozen=True, gc=False):
    """The load of one pod, or of all pods of a node together; vectors by resource."""

    prod_usage: Vector
    node_delta: Vector
    prod_delta: Vector
    estimated: Vector
    loads: tuple[Vector, ...] = ()
    """The same by kind of load: indexed by OF_NODE, OF_PROD, OF_ESTIMATES."""

    def __post_init__(self) -> None:
        prod = added(self.prod_usage, self.prod_delta) if any(self.prod_usage) else self.prod_delta
        msgspec.structs.force_setattr(self, "loads", (self.node_delta, prod, self.estimated))

    @property
    def parts(self) -> tuple[Vector, ...]:
        """All that is given; ``loads`` follow from these."""
        return self.prod_usage, self.node_delta, self.prod_delta, self.estimated

    def without(self, other: Share) -> Share:
        """How much more this is than ``other``."""
        prod_usage, node_delta, prod_delta, estimated = map(_less, self.parts, other.parts)
        return Share(prod_usage, node_delta, prod_delta, estimated)


def total(shares: Iterable[Share], width: int) -> Share:
    """The sum of ``shares``, for ``width`` resources."""
    nothing = (0,) * width
    vectors = zip((nothing,) * 4, *[share.parts for share in shares], strict=True)
    prod_usage, node_delta, prod_delta, estimated = [added(*of_part) for of_part in vectors]
    return Share(prod_usage, node_delta, prod_delta, estimated)


def added(*vectors: Vector) -> Vector:
    """The sum, resource by resource."""
    return tuple(map(sum, zip(*vectors, strict=True)))


def _less(one: Vector, other: Vector) -> Vector:
    return tuple([more - less for more, less in zip(one, other, strict=True)])


_NEVER: Final = 0.0


@dataclass(frozen=True)
class Incoming:
    """A pod that is being scheduled, or a class of pods."""

    amounts: Vector
    """Its expected usage."""
    prod: bool
    source: str = field(default="", compare=False)
    """The Recommendation that its expected usage follows from; empty where factors estimate it."""
    share: Share = field(init=False, compare=False)
    """What it adds to the load of its node until that has measured it: all of its expected usage."""

    def __post_init__(self) -> None:
        nothing = (0,) * len(self.amounts)
        share = Share(nothing, self.amounts, self.amounts if self.prod else nothing, self.amounts)
        object.__setattr__(self, "share", share)

    @cached_property
    def hundredfold(self) -> Floats:
        """A hundred times ``amounts``, in the shape (resources, 1)."""
        return np.array(self.amounts, dtype=np.float64).reshape(-1, 1) * MAX_NODE_SCORE

    def times(self, number: int) -> Incoming:
        """So many of these pods."""
        return Incoming(tuple([amount * number for amount in self.amounts]), self.prod)


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod on the node. Times are in seconds since the epoch."""

    key: str
    expected: Incoming
    assigned_at: float
    estimated_until: float
    """Until when the estimate counts although the pod has been measured; 0 when it never does."""


class Estimates:
    """Estimates of pods. ``memo_key`` is the key under which results are cached in a pod's memo."""

    def __init__(self, settings: Settings, memo_key: str) -> None:
        self._settings = settings
        self._memo_key = memo_key
        self._some_count_longer = (
            settings.customizable or settings.seconds_after_initialized > 0 or settings.seconds_after_scheduled > 0
        )
        """Whether any estimate may count although the pod has been measured."""

    def of(self, pod: PodInfo) -> Incoming:
        """The estimate of the pod as one that is being scheduled."""
        known: Incoming | None = pod.memo.get(self._memo_key)
        if known is None:
            known = pod.memo[self._memo_key] = self._incoming(pod.pod)
        return known

    def assigned(self, pod: PodInfo, assigned_at: float) -> AssignedPod:
        """The pod as one that has been on its node since ``assigned_at``, in seconds since the epoch."""
        until = self._until(pod.pod, assigned_at) if self._some_count_longer else _NEVER
        return AssignedPod(pod.key, self.of(pod), assigned_at, until)

    def _until(self, pod: Pod, assigned_at: float) -> float:
        """Until when the estimate counts although the pod has been measured, in seconds since the epoch."""
        settings = self._settings
        after_initialized, after_scheduled = settings.seconds_after_initialized, settings.seconds_after_scheduled
        if settings.customizable:
            of_pod = pod.metadata.annotations
            after_initialized = seconds_or(of_pod.get(keys.LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED), after_initialized)
            after_scheduled = seconds_or(of_pod.get(keys.LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED), after_scheduled)
        initialized = became_true(pod, "Initialized") if after_initialized > 0 else None
        if initialized is not None:
            return initialized.timestamp() + after_initialized
        return assigned_at + after_scheduled if after_scheduled > 0 else _NEVER

    def _incoming(self, pod: Pod) -> Incoming:
        """The estimate by factors."""
        factors: Mapping[str, int] = self._settings.factors
        if self._settings.customizable:
            factors = {**factors, **own_factors(pod)}
        priority = priority_class_with_default(pod)
        amounts = self._settings.vector(estimate_pod(pod, factors, priority))
        return Incoming(amounts, priority is PriorityClass.PROD)

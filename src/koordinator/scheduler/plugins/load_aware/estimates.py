"""What pods are expected to use, and for how long an expectation counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from koordinator.api import annotations as keys
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.model.load_estimate import estimate_pod
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.load_aware.objects import became_true, scaling_factors, seconds_or
from koordinator.scheduler.plugins.load_aware.settings import Settings, Vector
from koordinator.scheduler.plugins.load_aware.share import Share

_NEVER: Final = 0.0


@dataclass(frozen=True, slots=True)
class Incoming:
    """A pod that is looking for a node."""

    amounts: Vector
    """What it is expected to use."""
    prod: bool
    share: Share = field(init=False, compare=False)
    """What it adds to the load of its node until that has measured it: all that it is expected to use."""

    def __post_init__(self) -> None:
        nothing = (0,) * len(self.amounts)
        share = Share(nothing, self.amounts, self.amounts if self.prod else nothing, self.amounts)
        object.__setattr__(self, "share", share)


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod on the node. Times are in seconds since the epoch."""

    key: str
    expected: Incoming
    assigned_at: float
    estimated_until: float
    """Until when the estimate counts although the pod has been measured; 0 when it never does."""


class Estimates:
    """``memo_key`` is where a pod keeps what was found out about it."""

    def __init__(self, settings: Settings, memo_key: str) -> None:
        self._settings = settings
        self._memo_key = memo_key
        self._some_count_longer = (
            settings.customizable or settings.seconds_after_initialized > 0 or settings.seconds_after_scheduled > 0
        )
        """Whether any estimate may count although the pod has been measured."""

    def of(self, pod: PodInfo) -> Incoming:
        """The pod as one that is looking for a node."""
        known: Incoming | None = pod.memo.get(self._memo_key)
        if known is None:
            priority = priority_class_with_default(pod.pod)
            known = Incoming(self._estimate(pod.pod, priority), priority is PriorityClass.PROD)
            pod.memo[self._memo_key] = known
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

    def _estimate(self, pod: Pod, priority: PriorityClass) -> Vector:
        custom = self._custom_factors(pod)
        factors: Mapping[str, int] = self._settings.factors
        if custom:
            factors = {**factors, **scaling_factors(custom)}
        return self._settings.vector(estimate_pod(pod, factors, priority))

    def _custom_factors(self, pod: Pod) -> str | None:
        if not self._settings.customizable:
            return None
        return pod.metadata.annotations.get(keys.LOAD_ESTIMATED_SCALING_FACTORS)

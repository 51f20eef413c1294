"""How many replicas bring the usage of a resource to its target; pure.

A pod of which no usage is known is assumed to contradict the direction of the change: to use all that it requests when
fewer replicas would do, and nothing when more are needed. So are pods that are not ready yet when more are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.cluster.controllers.autoscaler.usage import MetricError, Sample
from koordinator.cluster.controllers.conditions import find_condition

DEFAULT_TOLERANCE: Final = 0.1
_CPU_INITIALIZATION: Final = timedelta(minutes=5)
"""For so long after its start, the CPU usage of a pod counts only if it has been ready for the whole window."""
_INITIAL_READINESS: Final = timedelta(seconds=30)
"""A pod that became unready later than this after its start has been ready before."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much the usage may differ from its target before anything changes, as shares of the target."""

    up: float = DEFAULT_TOLERANCE
    down: float = DEFAULT_TOLERANCE

    def admits(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class Usage:
    """All that a count is worked out from."""

    resource: str
    pods: Sequence[Pod]
    samples: Mapping[str, Sample]
    replicas: int
    """At present."""
    tolerance: Tolerance
    now: datetime


@dataclass(frozen=True, slots=True)
class Proposal:
    replicas: int
    average: Quantity
    """Of the pods that count."""
    utilization: int | None = None
    """Percent of the requests."""


def for_utilization(usage: Usage, requests: Mapping[str, int], percent: int) -> Proposal:
    """The pods should use ``percent`` of what they request. Raises MetricError."""

    def utilization(amounts: Mapping[str, int]) -> int:
        requested = sum(requests[name] for name in amounts if name in requests)
        if not requested:
            raise MetricError("no metrics returned matched known pods")
        return sum(amount for name, amount in amounts.items() if name in requests) * 100 // requested

    full = {name: amount * max(100, percent) // 100 for name, amount in requests.items()}
    groups = _grouped(usage)
    replicas = _replicas(usage, groups, lambda amounts: utilization(amounts) / percent, full)
    known = [amount for name, amount in groups.amounts.items() if name in requests]
    return Proposal(replicas, _average(usage, known), utilization(groups.amounts))


def for_average(usage: Usage, target: int) -> Proposal:
    """The pods should use ``target`` each, in thousandths. Raises MetricError."""
    groups = _grouped(usage)
    full = {pod.metadata.name: target for pod in usage.pods}
    replicas = _replicas(usage, groups, lambda amounts: sum(amounts.values()) // len(amounts) / target, full)
    return Proposal(replicas, _average(usage, list(groups.amounts.values())))


def _average(usage: Usage, amounts: Sequence[int]) -> Quantity:
    form = next(iter(usage.samples.values())).form
    return Quantity.from_milli(sum(amounts) // len(amounts), form)


@dataclass(frozen=True, slots=True)
class _Groups:
    amounts: dict[str, int]
    """Of the pods that count."""
    ready: int
    unready: set[str]
    missing: set[str]


def _grouped(usage: Usage) -> _Groups:
    if not usage.pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    amounts = {name: sample.milli for name, sample in usage.samples.items()}
    groups = _Groups(amounts, 0, set(), set())
    ready = 0
    for pod in usage.pods:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            amounts.pop(name, None)
        elif pod.status.phase == "Pending":
            groups.unready.add(name)
        elif name not in usage.samples:
            groups.missing.add(name)
        elif usage.resource == "cpu" and not _counts(pod, usage.samples[name], usage.now):
            groups.unready.add(name)
        else:
            ready += 1
    for name in groups.unready:
        amounts.pop(name, None)
    if not amounts:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return _Groups(amounts, ready, groups.unready, groups.missing)


def _counts(pod: Pod, sample: Sample, now: datetime) -> bool:
    """Whether the CPU usage of the pod is that of one at work, and not that of its start."""
    condition, started = find_condition(pod.status.conditions, "Ready"), pod.status.start_time
    if condition is None or started is None:
        return False
    since = condition.last_transition_time or started
    if started + _CPU_INITIALIZATION > now:
        is_whole = sample.taken is None or sample.taken >= since + sample.window
        return condition.status != "False" and is_whole
    return condition.status != "False" or started + _INITIAL_READINESS <= since


def _replicas(
    usage: Usage, groups: _Groups, ratio_of: Callable[[Mapping[str, int]], float], full: Mapping[str, int]
) -> int:
    """``full``: the usage of a pod that needs all that it may have."""
    ratio = ratio_of(groups.amounts)
    counts_unready = bool(groups.unready) and ratio > 1.0
    if not counts_unready and not groups.missing:
        return usage.replicas if usage.tolerance.admits(ratio) else math.ceil(ratio * groups.ready)
    amounts = dict(groups.amounts)
    if ratio != 1.0:
        amounts |= {name: full[name] if ratio < 1.0 else 0 for name in groups.missing}
    if counts_unready:
        amounts |= dict.fromkeys(groups.unready, 0)
    corrected = ratio_of(amounts)
    turned = (ratio < 1.0 < corrected) or (corrected < 1.0 < ratio)
    if turned or usage.tolerance.admits(corrected):
        return usage.replicas
    replicas = math.ceil(corrected * len(amounts))
    against = (corrected < 1.0 and replicas > usage.replicas) or (corrected > 1.0 and replicas < usage.replicas)
    return usage.replicas if against else replicas

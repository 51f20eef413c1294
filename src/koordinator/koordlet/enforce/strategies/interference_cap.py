"""Holds down best-effort pods that disturb others, where the NodeSLO says so: a cap on their CPU quota, for a while."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.policy import InterferenceStrategy
from koordinator.koordlet.enforce.strategies.snapshot import Decision, PodUsage, Snapshot
from koordinator.koordlet.observe.interference.detection import Finding
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_QUOTA, LEAST_QUOTA, PERIOD, Target

OWNER: Final = "interference-cap"
_LEAST_QUOTA: Final = 10_000
"""A tenth of a CPU: a pod that is limited still makes progress (CPI² leaves as much to batch jobs)."""


@dataclass(frozen=True, slots=True)
class Cap:
    """Until the monotonic time ``until``. ``quota`` in microseconds for each 100 ms."""

    quota: int
    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class CapState:
    """The caps in force, by uid of a pod; ``touched`` are all that had one since the start."""

    caps: Mapping[str, Cap] = field(default_factory=dict)
    touched: frozenset[str] = frozenset()


def decide(
    snapshot: Snapshot,
    bandwidths: Mapping[str, Mapping[str, Bandwidth]],
    findings: Iterable[Finding],
    strategy: InterferenceStrategy,
    state: CapState,
    now: float,
) -> tuple[Decision, CapState]:
    """Caps for the pods that are blamed with enough confidence. All other best-effort pods go back to the quota that
    the kubelet gives them, as ``bandwidths`` have it by UID, so that nothing stays behind, whatever had capped them
    before a restart; where the NodeSLO does not switch it on, those alone that had a cap.

    A cap is a percentage of what the pod used when it was blamed first. It holds for so many seconds after the pod was
    blamed last, and is not lowered meanwhile.
    """
    pods = {usage.pod.uid: usage for usage in snapshot.pods if usage.pod.is_best_effort}
    caps = {uid: cap for uid, cap in state.caps.items() if uid in pods and cap.until > now and strategy.suppress}
    for finding in findings if strategy.suppress else ():
        first = finding.suspects[0] if finding.suspects else None
        if first is None or first.advice != "suppress" or first.confidence * 100 < strategy.confidence_percent:
            continue
        usage = pods.get(first.uid)
        cap = _cap(usage, finding, strategy, caps.get(first.uid), now) if usage is not None else None
        if cap is not None:
            caps[first.uid] = cap
    touched = (state.touched & pods.keys()) | caps.keys()
    meant = pods if strategy.suppress else {uid: pods[uid] for uid in touched}
    settings = [
        setting
        for uid, usage in meant.items()
        for setting in usage.pod.derived(_settings, caps.get(uid), bandwidths.get(uid, {}))
    ]
    reason = f"{len(caps)} pods are held down" if strategy.suppress else "the NodeSLO does not switch it on"
    return Decision(tuple(settings), reason), CapState(caps, frozenset(touched))


def _cap(
    usage: PodUsage, finding: Finding, strategy: InterferenceStrategy, known: Cap | None, now: float
) -> Cap | None:
    until = now + strategy.cap_seconds
    reason = f"it disturbs {finding.name} ({finding.indicator})"
    if known is not None:
        return Cap(known.quota, until, reason)
    if usage.cpu is None:
        # Not measured just now: capped in the next round.
        return None
    quota = max(math.trunc(usage.cpu * PERIOD * strategy.cap_percent / 100), _LEAST_QUOTA)
    return Cap(quota, until, f"{reason}: {strategy.cap_percent} percent of {usage.cpu:.2f} cores")


def _settings(pod: NodePod, cap: Cap | None, bandwidths: Mapping[str, Bandwidth]) -> tuple[DesiredSetting, ...]:
    """For the pod, and for its containers with quotas: version 1 takes no child with more than its parent."""
    settings: list[DesiredSetting] = []
    for folder in (pod.cgroup, *(each.cgroup for each in pod.running)):
        given = bandwidths.get(folder)
        if given is None or (folder != pod.cgroup and given.quota == NO_LIMIT):
            continue
        target = Target(CPU_QUOTA, folder)
        if cap is None:
            settings.append(DesiredSetting(OWNER, target, given.quota, "it disturbs no other pod", Priority.RELEASE))
        else:
            # Joined with what the pod's own limits come to: the lower one holds.
            capped = max(cap.quota * given.period // PERIOD, LEAST_QUOTA)
            value = capped if given.quota == NO_LIMIT else min(given.quota, capped)
            settings.append(DesiredSetting(OWNER, target, value, cap.reason, Priority.POD))
    return tuple(settings)

"""Holds down best-effort pods that disturb others, where the NodeSLO says so: a cap on their CPU quota, for a while."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.koordlet.executor.wishes import Priority, Wish
from koordinator.koordlet.interference.detection import Finding
from koordinator.koordlet.policy import InterferenceStrategy
from koordinator.koordlet.qos.snapshot import Decision, PodUsage, Snapshot
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_QUOTA, Target

OWNER: Final = "interference-cap"
_PERIOD: Final = 100_000
_LEAST_QUOTA: Final = 10_000
"""A tenth of a CPU: a pod that is held down still goes on (CPI² leaves as much to batch jobs)."""


@dataclass(frozen=True, slots=True)
class Cap:
    """Until the monotonic time ``until``. ``quota`` in microseconds for each period of 100 ms."""

    quota: int
    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class CapState:
    """The caps in force, by uid of a pod."""

    caps: Mapping[str, Cap] = field(default_factory=dict)


def decide(
    snapshot: Snapshot, findings: Iterable[Finding], strategy: InterferenceStrategy, state: CapState, now: float
) -> tuple[Decision, CapState]:
    """Caps for the pods that are blamed with enough confidence; all other best-effort pods get no quota from here, so
    that nothing stays behind, whatever had capped them before a restart.

    A cap is a percentage of what the pod used when it was blamed first. It holds for so many seconds after the pod was
    blamed last, and is not lowered meanwhile.
    """
    pods = {usage.pod.uid: usage for usage in snapshot.pods if usage.is_best_effort}
    caps = {uid: cap for uid, cap in state.caps.items() if uid in pods and cap.until > now and strategy.suppress}
    for finding in findings if strategy.suppress else ():
        first = finding.suspects[0] if finding.suspects else None
        if first is None or first.advice != "suppress" or first.confidence * 100 < strategy.confidence_percent:
            continue
        usage = pods.get(first.uid)
        cap = _cap(usage, finding, strategy, caps.get(first.uid), now) if usage is not None else None
        if cap is not None:
            caps[first.uid] = cap
    wishes = [_wish(usage, caps.get(uid)) for uid, usage in pods.items()]
    reason = f"{len(caps)} pods are held down" if strategy.suppress else "the NodeSLO does not switch it on"
    return Decision(tuple(wishes), reason), CapState(caps)


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
    quota = max(math.trunc(usage.cpu * _PERIOD * strategy.cap_percent / 100), _LEAST_QUOTA)
    return Cap(quota, until, f"{reason}: {strategy.cap_percent} percent of {usage.cpu:.2f} cores")


def _wish(usage: PodUsage, cap: Cap | None) -> Wish:
    target = Target(CPU_QUOTA, usage.pod.cgroup)
    if cap is None:
        return Wish(OWNER, target, NO_LIMIT, "it disturbs nobody", Priority.RELEASE)
    # Joined with what the pod's own limits come to: the lower one holds.
    return Wish(OWNER, target, cap.quota, cap.reason, Priority.POD)

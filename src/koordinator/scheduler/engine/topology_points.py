"""How the point about NUMA nodes is run: all providers say what suits the pod, and all take what is made of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import NUMATopologyHintProvider, TopologyHint
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile

QueueingHints = Mapping[str, Sequence[TopologyHint] | None]
"""By resource; None for one that may come from anywhere."""


def topology_hints(profile: Profile, pod: PodInfo, row: int) -> list[QueueingHints] | Reason:
    """What each provider says, in the order of the profile; one reason with the words of all that refuse."""
    found: list[QueueingHints] = []
    refusals: list[str] = []
    for provider in profile.all(NUMATopologyHintProvider):
        answer = provider.topology_hints(pod, row)
        if isinstance(answer, Reason):
            refusals.append(answer.text)
        else:
            found.append(answer)
    return Reason(", ".join(refusals)) if refusals else found


def allocate_by_hint(profile: Profile, pod: PodInfo, row: int, hint: TopologyHint) -> Reason | None:
    """Let every provider check that it can allocate within ``hint``; the first that cannot says why."""
    for provider in profile.all(NUMATopologyHintProvider):
        reason = provider.allocate_by_hint(pod, row, hint)
        if reason is not None:
            return reason
    return None

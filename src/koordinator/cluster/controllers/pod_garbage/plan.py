"""Which pods nobody else will ever remove. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.node_lifecycle.health import TRUE, ready_status

TERMINATED_THRESHOLD: Final = 12_500
"""So many pods that have ended are kept; --terminated-pod-gc-threshold of kube-controller-manager."""
QUARANTINE_SECONDS: Final = 40.0
"""How long a node has to be missing: it may come back, or the cache may lag behind."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The key of the taint with which an administrator says that a node is off and stays so."""
_LIVE_PHASES: Final = frozenset({"Pending", "Running", "Unknown"})
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PodGarbage:
    """Pods to be deleted at once, whatever their grace period is."""

    pods: Sequence[Pod]
    orphaned: Sequence[Pod]
    """Those whose node is gone, which are told so."""


def plan_garbage(
    pods: Sequence[Pod], nodes: Mapping[str, Node], gone: Collection[str], threshold: int = TERMINATED_THRESHOLD
) -> PodGarbage:
    """``gone``: the names of nodes that have been missing for long enough."""
    orphaned = [pod for pod in pods if pod.spec.node_name in gone]
    doomed = {pod.metadata.uid: pod for pod in _terminated(pods, threshold)}
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None and _has_no_kubelet(pod, nodes):
            doomed[pod.metadata.uid] = pod
    for pod in orphaned:
        doomed.pop(pod.metadata.uid, None)
    return PodGarbage(list(doomed.values()), orphaned)


def _has_no_kubelet(pod: Pod, nodes: Mapping[str, Node]) -> bool:
    """Whether there is nobody who could confirm that a pod that is being deleted has ended."""
    if not pod.spec.node_name:
        return True
    node = nodes.get(pod.spec.node_name)
    if node is None or ready_status(node) == TRUE:
        return False
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _terminated(pods: Iterable[Pod], threshold: int) -> list[Pod]:
    """The pods that have ended beyond the threshold: those that a kubelet has evicted first, and then the oldest."""
    ended = [pod for pod in pods if pod.status.phase not in _LIVE_PHASES]
    surplus = len(ended) - threshold
    if threshold <= 0 or surplus <= 0:
        return []
    return sorted(ended, key=_age)[:surplus]


def _age(pod: Pod) -> tuple[bool, datetime, str]:
    is_evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not is_evicted, pod.metadata.creation_timestamp or _LONG_AGO, pod.metadata.name


class Quarantine:
    """Since when nodes have been missing that pods name."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def due(self, missing: Collection[str], now: float) -> list[str]:
        """The nodes among ``missing``, all that are, whose time is up; it begins anew for them. ``now`` in monotonic
        seconds."""
        self._since = {name: self._since.get(name, now) for name in missing}
        due = [name for name, since in self._since.items() if now - since >= QUARANTINE_SECONDS]
        for name in due:
            del self._since[name]
        return due

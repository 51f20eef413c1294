"""Pods that are nominated to a node: victims are leaving it, and nobody less important may take the capacity
meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from koordinator.scheduler.engine.pod_info import PodInfo

_NOBODY: Final[Mapping[str, PodInfo]] = MappingProxyType({})


class Nominations:
    """A pending pod has at most one nominated node."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on_node: dict[str, dict[str, PodInfo]] = {}
        self._with_affinity: dict[str, PodInfo] = {}
        self._foreign: set[str] = set()

    def __len__(self) -> int:
        return len(self._node_of)

    def node_of(self, uid: str) -> str:
        """The node that the pod is nominated to; empty for none."""
        return self._node_of.get(uid, "")

    def on(self, node_name: str) -> Collection[PodInfo]:
        """The pods nominated to the node, in the order of their nomination."""
        return self._on_node.get(node_name, _NOBODY).values()

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes that some pod is nominated to."""
        return self._on_node

    @property
    def with_affinity(self) -> Iterable[PodInfo]:
        """Those that have something to say about where other pods are."""
        return self._with_affinity.values()

    def is_foreign(self, uid: str) -> bool:
        """Whether another scheduler handles the pod."""
        return uid in self._foreign

    def set(self, pod: PodInfo, node_name: str, *, foreign: bool = False) -> None:
        """Nominate the pod, or with an empty name take its nomination back."""
        if self._node_of.get(pod.uid) != node_name:
            self.remove(pod.uid)
        if node_name:
            self._node_of[pod.uid] = node_name
            self._on_node.setdefault(node_name, {})[pod.uid] = pod
            if pod.pod.spec.affinity is not None:
                self._with_affinity[pod.uid] = pod
            if foreign:
                self._foreign.add(pod.uid)

    def remove(self, uid: str) -> PodInfo | None:
        """The pod is bound or gone. Returns it if it was nominated."""
        self._foreign.discard(uid)
        self._with_affinity.pop(uid, None)
        node_name = self._node_of.pop(uid, "")
        if not node_name:
            return None
        on_node = self._on_node[node_name]
        pod = on_node.pop(uid)
        if not on_node:
            del self._on_node[node_name]
        return pod

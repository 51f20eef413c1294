"""Pods that cannot be decoded: those that are on nodes close these, and their authors are told."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import PODS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.kube.interface import Malformed
from koordinator.scheduler.engine.allocations import Closure, ToldFaults
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.plugins.unreadable import UnreadablePods

_FINISHED: Final = ("Succeeded", "Failed")


class UnreadablePodHandlers:
    """``handle`` is that of any profile: for events under its scheduler name, and to wake pods."""

    def __init__(self, state: ClusterState, handle: Handle) -> None:
        self._state = state
        self._handle = handle
        self._plugin = UnreadablePods(None, state.view)
        self._told = ToldFaults()

    def on_malformed(self, broken: Malformed) -> None:
        """A pod cannot be decoded. What was known of it before on the same node goes on counting there; otherwise the
        node is closed."""
        key = f"{broken.namespace}/{broken.name}"
        if not broken.node_name or broken.phase in _FINISHED:
            self.on_readable(broken)
            return
        fault = f"the pod cannot be decoded: {broken.error}"
        uid = broken.uid
        if self._state.confirmed_node(uid) == broken.node_name:
            self._open(key)
        else:
            self._plugin.close(broken.node_name, Closure(key, fault))
        if self._told.is_news(uid, fault):
            metadata = ObjectMeta(
                name=broken.name, namespace=broken.namespace, uid=uid, resource_version=broken.resource_version
            )
            pod = Pod(metadata=metadata)
            self._handle.object_event(PODS, pod, "Warning", "UnreadablePod", "Scheduling", fault)

    def on_readable(self, broken: Malformed) -> None:
        """A pod that could not be decoded can be now, or takes nothing of its node any more."""
        self._told.forget(broken.uid)
        self._open(f"{broken.namespace}/{broken.name}")

    def _open(self, key: str) -> None:
        if self._plugin.open(key):
            self._handle.announce(ClusterEvent(EventKind.POD_READABLE))

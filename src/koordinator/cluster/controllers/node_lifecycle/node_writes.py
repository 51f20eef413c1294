"""The writes of the node lifecycle controller: each is void where somebody has changed the object since it was read,
because then an event of that change comes, and the decision is made anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS, Kind
from koordinator.api.node import Node, Taint
from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.cluster.controllers.node_lifecycle.health import FALSE, READY
from koordinator.cluster.controllers.node_lifecycle.taints import taint_patch
from koordinator.cluster.controllers.pod_disruption import pod_condition
from koordinator.cluster.controllers.pod_state import is_ready
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.interface import Client, PatchType


class NodeWrites:
    """All of them return whether the write was done, and raise KubeError for what may be tried again as it is."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock

    async def taint(self, node: Node, taints: Sequence[Taint] | None) -> bool:
        """Give the node these taints; None leaves them as they are."""
        return taints is None or await self._patch(NODES, node, taint_patch(node, taints), PatchType.MERGE)

    async def label(self, node: Node, labels: dict[str, str]) -> bool:
        """Add these labels."""
        body = {"metadata": {"uid": node.metadata.uid, "labels": labels}}
        return not labels or await self._patch(NODES, node, body, PatchType.MERGE)

    async def set_conditions(self, node: Node, conditions: Sequence[Document]) -> bool:
        """Set the conditions of these types."""
        metadata = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
        body = {"metadata": metadata, "status": {"conditions": list(conditions)}}
        return not conditions or await self._patch(NODES, node, body, PatchType.STRATEGIC, "status")

    async def mark_not_ready(self, pod: Pod) -> bool:
        """Write that the pod is not ready, and record the event, unless it is so already."""
        condition = pod_condition(pod, READY, FALSE, self._clock.now()) if is_ready(pod) else None
        if condition is None:
            return True
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        is_written = await self._patch(PODS, pod, body, PatchType.STRATEGIC, "status")
        if is_written:
            regarding = reference_to(PODS, pod)
            self._recorder.event(regarding, "Warning", "NodeNotReady", "NodeNotReady", "Node is not ready")
        return is_written

    async def _patch(
        self, kind: Kind[Any], obj: Node | Pod, body: Document, patch_type: PatchType, subresource: str = ""
    ) -> bool:
        metadata = obj.metadata
        try:
            await self._client.patch(kind, metadata.name, body, patch_type, metadata.namespace, subresource=subresource)
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
            return False
        return True

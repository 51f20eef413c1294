"""How controllers that serve no workload end pods: which pods a node has, why a pod is ended, and its deletion."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from koordinator.api.document import Document
from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.api.timestamps import format_time
from koordinator.cluster.controllers.conditions import find_condition
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

NODE_INDEX: Final = "node"
"""Of an informer of pods: those of each node."""
_DISRUPTION_TARGET: Final = "DisruptionTarget"


def by_node(pod: Pod) -> tuple[str, ...]:
    """Index function for ``NODE_INDEX``; a pod that is not bound is not in the index."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def pod_condition(pod: Pod, type_: str, status: str, now: datetime, **fields: str) -> Document | None:
    """A condition as it is to be written in a strategic merge patch; None if the pod has it. The time of the last
    transition changes with the status alone."""
    current = find_condition(pod.status.conditions, type_)
    if current is not None and current.status == status:
        if all(getattr(current, name) == value for name, value in fields.items()):
            return None
        return {"type": type_, "status": status, **fields}
    return {"type": type_, "status": status, "lastTransitionTime": format_time(now), **fields}


def disruption_target(pod: Pod, reason: str, message: str, now: datetime) -> Document | None:
    """The condition that tells the owner of a pod that the cluster ends it; None if the pod has it."""
    condition = pod_condition(pod, _DISRUPTION_TARGET, "True", now, reason=reason, message=message)
    if condition is not None and pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    return condition


async def end_pod(client: Client, pod: Pod, status: Document, *, grace_period_seconds: int | None = None) -> None:
    """Write what is to be changed in the status of this very pod, if anything, and delete it. A pod that is gone, or
    replaced by another of its name, is no error. Raises KubeError."""
    metadata = pod.metadata
    try:
        if status:
            body = {"metadata": {"uid": metadata.uid}, "status": status}
            await client.patch(PODS, metadata.name, body, PatchType.STRATEGIC, metadata.namespace, subresource="status")
        await client.delete(
            PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace_period_seconds=grace_period_seconds
        )
    except ApiStatusError as error:
        if not (error.is_not_found or error.is_conflict):
            raise

"""What the kubelet of a simulated node makes of a resize: it grants it, waits until there is room, or never can."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from koordinator.api.pod import Container, Pod, ResourceRequirements, is_finished
from koordinator.cluster.nodes.node_objects import SimulatedNode, allocatable
from koordinator.cluster.nodes.pod_commands import ContainerWithCommand
from koordinator.model.pod_requests import Amounts, canonical, pod_requests

_COUNTED: Final = ("cpu", "memory")


class Pending(NamedTuple):
    """Why a pod does not have yet what its spec says: the condition ``PodResizePending``."""

    reason: str
    """``Deferred`` until other pods leave, or ``Infeasible``."""
    message: str


def pending_resize(pod: Pod, node: SimulatedNode, others: Iterable[Pod]) -> Pending | None:
    """None where the node has room. ``others`` are all pods of the node; in the words of the real kubelet."""
    wanted, capacity = pod_requests(pod, resized=False), allocatable(node)
    for name in ("memory", "cpu"):
        if wanted.get(name, 0) > capacity[name]:
            text = f"{name}, requested: {canonical(name, wanted[name])}, capacity: {canonical(name, capacity[name])}"
            return Pending("Infeasible", f"Node didn't have enough capacity: {text}")
    used = _used(each for each in others if each.metadata.uid != pod.metadata.uid)
    for name in _COUNTED:
        if wanted.get(name, 0) + used[name] > capacity[name]:
            amounts = {"requested": wanted[name], "used": used[name], "capacity": capacity[name]}
            text = ", ".join(f"{title}: {canonical(name, amount)}" for title, amount in amounts.items())
            return Pending("Deferred", f"Node didn't have enough resource: {name}, {text}")
    return None


def _used(pods: Iterable[Pod]) -> Amounts:
    used = dict.fromkeys(_COUNTED, 0)
    for pod in pods:
        if not is_finished(pod):
            requests = pod_requests(pod)
            for name in _COUNTED:
                used[name] += requests.get(name, 0)
    return used


def granted(pod: Pod) -> dict[str, ResourceRequirements]:
    """What each container has now, by its name: what its status says, else its spec."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    found = {each.name: each.resources for each in (*pod.spec.containers, *pod.spec.init_containers)}
    return found | {each.name: each.resources for each in statuses if each.resources is not None}


def restarts(container: Container, before: ResourceRequirements) -> bool:
    """Whether its resize policy has the container restarted for what changes."""
    policies = container.resize_policy if isinstance(container, ContainerWithCommand) else ()
    return any(
        policy.restart_policy == "RestartContainer"
        and any(
            getattr(container.resources, kind).get(policy.resource_name)
            != getattr(before, kind).get(policy.resource_name)
            for kind in ("requests", "limits")
        )
        for policy in policies
    )

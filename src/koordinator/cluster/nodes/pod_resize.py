"""What the kubelet of a simulated node makes of a resize: it grants it, waits until there is room, or never can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from koordinator.api.pod import Container, Pod, ResourceRequirements, is_finished
from koordinator.cluster.nodes.node_objects import SimulatedNode, allocatable
from koordinator.cluster.nodes.simulated_pod import SimulatedContainer, SimulatedPod
from koordinator.model.pod_requests import Amounts, canonical, pod_requests

_COUNTED: Final = ("memory", "cpu")

Granted = Mapping[str, ResourceRequirements]
"""What each container has, by its name."""
_C = TypeVar("_C", bound=Container)


class Pending(NamedTuple):
    """Why a pod does not have yet what its spec says: the condition ``PodResizePending``."""

    reason: str
    """``Deferred`` until other pods leave or shrink, or ``Infeasible``."""
    message: str

    @property
    def is_deferred(self) -> bool:
        return self.reason == "Deferred"


class Resized(NamedTuple):
    """What has become of the spec of a pod as it is now."""

    pending: Pending | None
    makes_room: bool
    """It needs less than before, for which other pods may wait."""


class Allocations:
    """What each pod has been granted by its node, also while the API does not show it yet."""

    def __init__(self) -> None:
        self._granted: dict[str, Granted] = {}

    def forget(self, uid: str) -> None:
        self._granted.pop(uid, None)

    def resize(self, pod: Pod, node: SimulatedNode, pods: Iterable[Pod]) -> Resized:
        """Grant what the spec says where the node has room. ``pods`` are all of the node."""
        others = (each for each in pods if each.metadata.uid != pod.metadata.uid and not is_finished(each))
        wanted, before = pod_requests(pod, resized=False), self._requests(pod)
        pending = _pending(wanted, node, [self._requests(each) for each in others])
        if pending is not None:
            return Resized(pending, makes_room=False)
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        self._granted[pod.metadata.uid] = {each.name: each.resources for each in containers}
        return Resized(None, any(wanted.get(name, 0) < before.get(name, 0) for name in _COUNTED))

    def _requests(self, pod: Pod) -> Amounts:
        found = self._granted.get(pod.metadata.uid) or granted(pod)
        spec = replace(
            pod.spec,
            containers=_with(pod.spec.containers, found),
            init_containers=_with(pod.spec.init_containers, found),
        )
        return pod_requests(replace(pod, spec=spec), resized=False)


def _with(containers: Sequence[_C], granted: Granted) -> list[_C]:
    return [replace(each, resources=granted.get(each.name, each.resources)) for each in containers]


def _pending(wanted: Amounts, node: SimulatedNode, others: Sequence[Amounts]) -> Pending | None:
    """None where the node has room for it beside the others; in the words of the real kubelet."""
    capacity = allocatable(node)
    for name in _COUNTED:
        if wanted.get(name, 0) > capacity[name]:
            text = f"{name}, requested: {canonical(name, wanted[name])}, capacity: {canonical(name, capacity[name])}"
            return Pending("Infeasible", f"Node didn't have enough capacity: {text}")
    for name in reversed(_COUNTED):
        used = sum(each.get(name, 0) for each in others)
        if wanted.get(name, 0) + used > capacity[name]:
            amounts = {"requested": wanted[name], "used": used, "capacity": capacity[name]}
            text = ", ".join(f"{title}: {canonical(name, amount)}" for title, amount in amounts.items())
            return Pending("Deferred", f"Node didn't have enough resource: {name}, {text}")
    return None


def granted(pod: Pod) -> dict[str, ResourceRequirements]:
    """What each container has as the API shows it: what its status says, else its spec."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    found = {each.name: each.resources for each in (*pod.spec.containers, *pod.spec.init_containers)}
    return found | {each.name: each.resources for each in statuses if each.resources is not None}


def restarts(pod: SimulatedPod) -> set[str]:
    """The containers that are restarted for what changes, by their resize policies."""
    before = granted(pod)
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return {each.name for each in containers if _is_restarted(each, before[each.name])}


def _is_restarted(container: SimulatedContainer, before: ResourceRequirements) -> bool:
    return any(
        policy.restart_policy == "RestartContainer"
        and any(
            getattr(container.resources, kind).get(policy.resource_name)
            != getattr(before, kind).get(policy.resource_name)
            for kind in ("requests", "limits")
        )
        for policy in container.resize_policy
    )

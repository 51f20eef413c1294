"""What the usage model needs to know of a pod: how it behaves and what it asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.pod import Container, Pod, ResourceRequirements
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import QoSClass, qos_class_with_default
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY, with_current_names
from koordinator.cluster.nodes.noise import identity
from koordinator.cluster.nodes.usage import Tier

_EXTENDED_CPU: Final = (BATCH_CPU, MID_CPU)
_MEMORIES: Final = (MEMORY, BATCH_MEMORY, MID_MEMORY)


@dataclass(frozen=True, slots=True)
class PodProfile:
    """CPU in cores, memory in bytes; no limit is infinity."""

    uid: str
    id: int
    namespace: str
    name: str
    priority: PriorityClass
    qos: QoSClass
    tier: Tier
    cpu_request: float
    cpu_limit: float
    memory_request: float
    memory_limit: float


def profile_of(pod: Pod) -> PodProfile:
    """Native, batch and mid resources count alike: whichever a pod asks for is what its processes use."""
    priority = priority_class_with_default(pod)
    holders = _holders(pod)
    requests = [_amounts(holder.requests or holder.limits) for holder in holders]
    limits = [_amounts(holder.limits) for holder in holders]
    cpu_request, memory_request = _total(requests, 0, 0.0), _total(requests, 1, 0.0)
    return PodProfile(
        uid=pod.metadata.uid,
        id=identity(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        priority=priority,
        qos=qos_class_with_default(pod),
        tier=_tier(priority, asks=cpu_request > 0 or memory_request > 0),
        cpu_request=cpu_request,
        cpu_limit=_total(limits, 0, math.inf),
        memory_request=memory_request,
        memory_limit=_total(limits, 1, math.inf),
    )


def _tier(priority: PriorityClass, *, asks: bool) -> Tier:
    if not asks:
        return Tier.BEST_EFFORT
    if priority in (PriorityClass.PROD, PriorityClass.NONE):
        return Tier.LATENCY_SENSITIVE
    return Tier.BATCH


def _holders(pod: Pod) -> list[ResourceRequirements]:
    whole = pod.spec.resources
    if whole is not None and (whole.requests or whole.limits):
        return [whole]
    return [container.resources for container in running_containers(pod)]


def running_containers(pod: Pod) -> list[Container]:
    """The containers of a pod that has initialised: its own and its sidecars."""
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    return [*pod.spec.containers, *sidecars]


def _amounts(resources: Mapping[str, Quantity]) -> tuple[float | None, float | None]:
    """CPU and memory; None where nothing is said."""
    resources = with_current_names(resources)
    cores = [resources[CPU].milli / 1000] if CPU in resources else []
    cores += [resources[name].value / 1000 for name in _EXTENDED_CPU if name in resources]
    memory = [float(resources[name].value) for name in _MEMORIES if name in resources]
    return (sum(cores) if cores else None, sum(memory) if memory else None)


def _total(parts: list[tuple[float | None, float | None]], which: int, absent: float) -> float:
    """The sum over containers, each that says nothing counting as ``absent``."""
    amounts = [part[which] for part in parts]
    return sum(absent if amount is None else amount for amount in amounts) if amounts else absent

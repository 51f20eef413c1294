"""A pod with what is derived from it once: its request, its key and its priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, MEMORY, PODS
from koordinator.model.pod_requests import canonical, is_resize_infeasible, non_zero_requests, pod_requests


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The requested resources of a pod, by name: it may name any, whether a node offers it or not."""

    amounts: Mapping[str, int]
    """In the units of columns, without zeros, without the pod itself."""
    non_zero: tuple[int, int]
    """CPU and memory with the upstream defaults (100 milli-CPU, 200 MiB per container) where nothing is requested."""
    counted: Mapping[str, int] = field(init=False)
    """The same with the pod itself as one of ``pods``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "counted", {**self.amounts, PODS: 1})


@dataclass(slots=True)
class PodInfo:
    """A pod with all that is derived from it once."""

    pod: Pod
    request: PodRequest
    key: str
    """``namespace/name``."""
    uid: str
    priority: int
    memo: dict[str, Any] = field(default_factory=dict)
    """What plugins have derived from the pod, by keys that they choose. It is kept as long as spec (but for the node's
    name), labels, annotations and owners stay the same, so through assuming and binding."""


class PlacedPod(msgspec.Struct):
    """A pod that occupies a node; ``row`` is negative while that node is unknown."""

    pod: PodInfo
    node_name: str
    row: int
    assumed: bool


def make_pod_info(pod: Pod) -> PodInfo:
    """Compute a pod's PodInfo."""
    amounts = {name: canonical(name, nanos) for name, nanos in pod_requests(pod).items() if nanos}
    if _names_cpu_and_memory(pod):
        non_zero = amounts.get(CPU, 0), amounts.get(MEMORY, 0)
    else:
        counted = non_zero_requests(pod)
        non_zero = canonical(CPU, counted.get(CPU, 0)), canonical(MEMORY, counted.get(MEMORY, 0))
    metadata = pod.metadata
    return PodInfo(
        pod=pod,
        request=PodRequest(amounts, non_zero),
        key=metadata.key,
        uid=metadata.uid,
        priority=pod.spec.priority or 0,
    )


def _names_cpu_and_memory(pod: Pod) -> bool:
    """Whether every container requests both, so that no default counts; true for most pods. False for a pod whose
    resize is infeasible: there, what its node has granted counts instead, which may leave something out."""
    if is_resize_infeasible(pod):
        return False
    spec = pod.spec
    for container in (*spec.containers, *spec.init_containers) if spec.init_containers else spec.containers:
        requests = container.resources.requests
        if CPU not in requests or MEMORY not in requests:
            return False
    return True

"""What the kubelet gives the cgroups of a pod and of its containers: one function over spec and status.

The rules are those of the kubelet (ResourceConfigForPod, and calculateLinuxResources for a container): a pod is limited
where each of its containers is, the init containers included, or where the pod itself has a limit; sidecars add up with
the containers, overhead is added, and a container without a limit has that of its pod. They are compared with the files
that a real kubelet writes: tests/real/test_kubelet_quotas.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from koordinator.api.pod import Container, ContainerStatus, Pod, ResourceRequirements
from koordinator.api.qos import KubernetesQoS, kubernetes_qos
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.model.pod_requests import canonical, pod_limits, pod_requests

_RESIZING: Final = frozenset({"PodResizePending", "PodResizeInProgress"})


@dataclass(frozen=True, slots=True)
class Grant:
    """Milli-CPU and bytes; None where there is no limit."""

    cpu_request: int = 0
    cpu_limit: int | None = None
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class PodGrant:
    """Of the pod's own cgroup, and by name of its containers, sidecars and other init containers."""

    pod: Grant
    containers: Mapping[str, Grant]


NOTHING: Final = PodGrant(Grant(), {})


def pod_grant(pod: Pod) -> PodGrant:
    """What is in force: of a resize that waits or was refused, what the kubelet has granted before."""
    return requested_grant(_granted(pod))


def requested_grant(pod: Pod) -> PodGrant:
    """What the spec wants, which the kubelet grants in the end unless it refuses a resize."""
    spec = pod.spec
    whole = spec.resources or ResourceRequirements()
    containers = (*spec.init_containers, *spec.containers)
    return PodGrant(
        _of_pod(pod, containers, whole), {each.name: _of_container(each.resources, whole) for each in containers}
    )


def is_being_resized(pod: Pod) -> bool:
    """Whether the spec may want something else than the kubelet has granted: it has refused or postponed it, is about
    to do it, or has not seen it yet."""
    observed = pod.status.observed_generation
    if observed is not None and observed < pod.metadata.generation:
        return True
    if pod.status.resize:
        return True
    return any(each.type in _RESIZING and each.status != "False" for each in pod.status.conditions)


def _of_pod(pod: Pod, containers: Sequence[Container], whole: ResourceRequirements) -> Grant:
    if kubernetes_qos(pod) == KubernetesQoS.BEST_EFFORT:
        # Overhead counts for no limit.
        return Grant()
    limits = pod_limits(pod)

    def limit(name: str) -> int | None:
        is_limited = _is_positive(whole, name) or all(_is_positive(each.resources, name) for each in containers)
        return canonical(name, limits[name]) if is_limited else None

    return Grant(canonical(CPU, pod_requests(pod, resized=False).get(CPU, 0)), limit(CPU), limit(MEMORY))


def _of_container(resources: ResourceRequirements, whole: ResourceRequirements) -> Grant:
    def limit(name: str) -> int | None:
        found = resources if _is_positive(resources, name) else whole
        return canonical(name, found.limits[name].nanos) if _is_positive(found, name) else None

    request = resources.requests.get(CPU)
    # Without a request, the limit counts: its own, or that of the pod.
    shares = (limit(CPU) or 0) if request is None else canonical(CPU, request.nanos)
    return Grant(shares, limit(CPU), limit(MEMORY))


def _is_positive(resources: ResourceRequirements, name: str) -> bool:
    amount = resources.limits.get(name)
    return amount is not None and amount.nanos > 0


def _granted(pod: Pod) -> Pod:
    """The pod with the resources that are in force."""
    if not is_being_resized(pod):
        return pod
    statuses = {each.name: each for each in (*pod.status.container_statuses, *pod.status.init_container_statuses)}

    def in_force(containers: Sequence[Container]) -> list[Container]:
        return [_with_status(each, statuses.get(each.name)) for each in containers]

    spec = pod.spec
    whole = pod.status.resources if spec.resources is not None and pod.status.resources is not None else spec.resources
    granted = msgspec.structs.replace(
        spec,
        containers=in_force(spec.containers),
        init_containers=in_force(spec.init_containers),
        resources=whole,
    )
    return msgspec.structs.replace(pod, spec=granted)


def _with_status(container: Container, status: ContainerStatus | None) -> Container:
    if status is None or status.resources is None:
        return container
    return msgspec.structs.replace(container, resources=status.resources)

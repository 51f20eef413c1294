"""A hashable key of the containers' requests and limits, from which a pod's sums follow."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from koordinator.api.pod import Container, Pod, ResourceList, ResourceRequirements
from koordinator.scheduler.engine.pod_info import PodInfo

_MEMO: Final = "resources_key"


def resources_key(pod: PodInfo) -> Hashable:
    """Equal for pods with equal requests and limits container by container. Several plugins use it; computed once for
    each pod."""
    key = pod.memo.get(_MEMO)
    if key is None:
        key = pod.memo[_MEMO] = _key(pod.pod)
    return key


def _key(pod: Pod) -> tuple[Hashable, ...]:
    spec = pod.spec
    return (
        tuple([_requirements(container.resources) for container in spec.containers]),
        tuple([_container(container) for container in spec.init_containers]),
        _amounts(spec.overhead),
        _requirements(spec.resources) if spec.resources is not None else None,
    )


def _container(container: Container) -> Hashable:
    return container.restart_policy, _requirements(container.resources)


def _requirements(resources: ResourceRequirements) -> Hashable:
    return _amounts(resources.requests), _amounts(resources.limits)


def _amounts(amounts: ResourceList) -> Hashable:
    # In the order of the document, which is the API server's and so the same for identical pods.
    return tuple([(name, quantity.nanos) for name, quantity in amounts.items()])

"""The part of a pod that its sums of requests and limits depend on, as a hashable value."""

from __future__ import annotations

from collections.abc import Hashable

from koordinator.api.pod import Container, Pod, ResourceList, ResourceRequirements


def resources_key(pod: Pod) -> Hashable:
    """Equal for pods with equal requests and limits container by container."""
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
    # In the order of the document, which is the API server's and so the same for like pods.
    return tuple([(name, quantity.nanos) for name, quantity in amounts.items()])

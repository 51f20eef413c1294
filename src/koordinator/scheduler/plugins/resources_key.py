"""The part of a pod that its sums of requests and limits depend on, as a hashable value."""

from __future__ import annotations

from collections.abc import Hashable

from koordinator.api.pod import Container, Pod, ResourceRequirements


def resources_key(pod: Pod) -> Hashable:
    """Equal for pods with equal requests and limits container by container."""
    spec = pod.spec
    return (
        tuple([_requirements(container.resources) for container in spec.containers]),
        tuple([_container(container) for container in spec.init_containers]),
        frozenset(spec.overhead.items()) if spec.overhead else None,
        _requirements(spec.resources) if spec.resources is not None else None,
    )


def _container(container: Container) -> Hashable:
    return container.restart_policy, _requirements(container.resources)


def _requirements(resources: ResourceRequirements) -> Hashable:
    return frozenset(resources.requests.items()), frozenset(resources.limits.items())

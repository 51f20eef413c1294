"""How many pods the controllers of some pods want: what a budget's shares are taken of."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.document import Document
from koordinator.cluster.disruption.status import UnknownReplicas
from koordinator.cluster.errors import ApiError
from koordinator.cluster.registry import Registry
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.scale import scale_of
from koordinator.cluster.verbs.environment import Environment


class ControllerReplicas:
    """Reads the ``scale`` of whatever controls a pod; of a Deployment's ReplicaSet, that of the Deployment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def __call__(self, pods: Sequence[Document]) -> int:
        """Pods that nobody controls count for nothing. Raises UnknownReplicas."""
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = _controller(pod)
            if owner is None or owner["uid"] in wanted:
                continue
            found = self._replicas(owner, pod["metadata"]["namespace"])
            if found is None:
                raise UnknownReplicas(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            wanted |= found
        return sum(wanted.values())

    def _replicas(self, owner: Document, namespace: str) -> dict[str, int] | None:
        """By uid; a Deployment's under its own and under that of the ReplicaSet, which then counts for nothing."""
        resource = _resource_of(self._environment.registry, owner)
        if resource.scale is None:
            named = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            raise UnknownReplicas(f"{named} does not implement the scale subresource")
        obj = self._environment.lookup(resource.group, resource.plural, namespace, owner["name"])
        if obj is None or obj["metadata"]["uid"] != owner["uid"]:
            return None
        above = _controller(obj)
        if resource.kind == "ReplicaSet" and above is not None and above.get("kind") == "Deployment":
            found = self._replicas(above, namespace)
            return None if found is None else {**found, owner["uid"]: 0}
        try:
            return {owner["uid"]: scale_of(obj, resource.scale)["spec"].get("replicas") or 0}
        except ApiError as error:
            raise UnknownReplicas(error.message) from error


def _controller(obj: Document) -> Document | None:
    owners = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _resource_of(registry: Registry, owner: Document) -> Resource:
    version, kind = owner["apiVersion"], owner["kind"]
    found = next((resource for resource in registry if (resource.api_version, resource.kind) == (version, kind)), None)
    if found is None:
        raise UnknownReplicas(f'no matches for kind "{kind}" in version "{version}"')
    return found

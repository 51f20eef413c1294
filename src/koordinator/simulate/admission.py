"""Admission of new pods by koord-manager's own webhook handler, called in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from koordinator.api.codec import DecodeError, convert
from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.core import PriorityClass
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, NAMESPACES, PRIORITY_CLASSES, Kind
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Registry
from koordinator.cluster.storage.interface import Storage, Stored
from koordinator.cluster.verbs.environment import Admission, Attributes, NoWebhooks, plugins_mutate
from koordinator.cluster.verbs.target import Target, decode
from koordinator.manager.webhook.admission import AdmissionRequest
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler

_MEAN_DRAW: Final = 0
"""A profile with a probability draws a number from 0 to 99 for each pod; here a profile applies unless its probability
is 0."""


class ManagerAdmission(NoWebhooks):
    """Implements ``Webhooks`` of the embedded API."""

    in_force = ("koord-manager",)

    def __init__(self, storage: Storage, registry: Registry, built_in: Admission) -> None:
        self._built_in = built_in
        self._handler = PodMutatingHandler(_StoredCluster(storage, registry), _NoTrees(), lambda: _MEAN_DRAW)

    def mutates(self, attributes: Attributes) -> bool:
        resource = attributes.target.resource
        return attributes.operation == "CREATE" and resource.plural == "pods" and not attributes.target.subresource

    async def mutate(self, attributes: Attributes) -> None:
        obj, target = attributes.obj, attributes.target
        assert obj is not None
        request = AdmissionRequest(
            "CREATE", "", "v1", target.resource.plural, namespace=target.namespace or "", name=target.name, object=obj
        )
        try:
            response = self._handler.handle(request)
        except KoordinatorError as error:
            raise ApiError(400, "BadRequest", f"koord-manager's webhook would refuse the pod: {error}") from error
        if response.changed is not None:
            obj.clear()
            obj.update(response.changed)
            # As the API server does after a mutation: the profile may have set another priority class.
            await plugins_mutate(self._built_in, attributes)


class _NoTrees:
    """Quota trees are only looked up where the gate MultiQuotaTree is on, which it is not by default."""

    def tree_of(self, quota: str, namespace: str) -> str:
        return ""

    def profiles_of(self, tree: str) -> Iterable[ElasticQuotaProfile]:
        return ()


class _StoredCluster:
    """Implements ``ColocationCluster`` over the present store; an object that has not changed stays the same one."""

    def __init__(self, storage: Storage, registry: Registry) -> None:
        self._storage = storage
        self._registry = registry
        self._known: dict[str, tuple[int, Any]] = {}

    def colocation_profiles(self) -> Iterable[ClusterColocationProfile]:
        prefix = self._resource(CLUSTER_COLOCATION_PROFILES).prefix
        found = (self._typed(CLUSTER_COLOCATION_PROFILES, stored) for stored in self._storage.list(prefix).items)
        return [profile for profile in found if profile is not None]

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        found = self._get(NAMESPACES, name)
        return found.metadata.labels if found is not None else None

    def priority_class(self, name: str) -> PriorityClass | None:
        found: PriorityClass | None = self._get(PRIORITY_CLASSES, name)
        return found

    def _get(self, kind: Kind[Any], name: str) -> Any:
        stored = self._storage.get(Target(self._resource(kind), None, name).key)
        return None if stored is None else self._typed(kind, stored)

    def _resource(self, kind: Kind[Any]) -> Any:
        resource = self._registry.served.get((kind.group, kind.version, kind.plural))
        assert resource is not None
        return resource

    def _typed(self, kind: Kind[Any], stored: Stored) -> Any:
        """None for an object that cannot be decoded, which koord-manager skips as well."""
        known = self._known.get(stored.key)
        if known is None or known[0] != stored.revision:
            try:
                found = convert(decode(self._resource(kind), stored), kind.type)
            except DecodeError:
                found = None
            known = self._known[stored.key] = stored.revision, found
        return known[1]

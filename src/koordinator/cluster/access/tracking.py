"""Keeps a ``Policy`` as the store is: all roles and bindings once, and then every change of one."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.cluster.access.policy import KINDS, RBAC_GROUP, Policy, RbacKind
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.storage.interface import Change, Storage, Stored
from koordinator.cluster.verbs.target import decode


def followed_policy(storage: Storage, registry: Registry) -> Policy:
    """What is decided by it holds for the request that comes after a write: changes arrive before their writers hear of
    them."""
    follower = _Follower(Policy(), {kind: _resource(registry, kind) for kind in KINDS})
    for resource in follower.resources.values():
        for stored in storage.list(resource.prefix).items:
            follower.put(stored)
    storage.observe(follower.observe)
    return follower.policy


def _resource(registry: Registry, kind: RbacKind) -> Resource:
    resource = registry.stored[RBAC_GROUP, kind]
    assert resource is not None
    return resource


class _Follower:
    def __init__(self, policy: Policy, resources: dict[RbacKind, Resource]) -> None:
        self.policy = policy
        self.resources = resources
        self._kinds = {resource.prefix: kind for kind, resource in resources.items()}
        self._group = f"/{RBAC_GROUP}/"

    def observe(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if not change.key.startswith(self._group):
                continue
            if change.type == "deleted":
                kind, parts = self._parsed(change.key)
                self.policy.remove(kind, parts[0] if len(parts) > 1 else "", parts[-1])
            else:
                self.put(change.current)

    def put(self, stored: Stored) -> None:
        kind, _ = self._parsed(stored.key)
        self.policy.put(kind, decode(self.resources[kind], stored))

    def _parsed(self, key: str) -> tuple[RbacKind, list[str]]:
        """The kind, and the name after its namespace if it has one."""
        _, group, plural, *rest = key.split("/")
        return self._kinds[f"/{group}/{plural}/"], rest

"""Managers of a Scale and of the object that it shows: the same, but for the path of the replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.managed_fields.elements import FIELD
from koordinator.cluster.managed_fields.field_set import difference, has, of_fields, of_paths
from koordinator.cluster.managed_fields.managers import Identity, Owned, entries_of, read
from koordinator.cluster.resource import Registry, Resource

_SCALE_VERSION: Final = "autoscaling/v1"
_REPLICAS: Final = of_fields("spec.replicas")
_REPLICAS_PATH: Final = (f"{FIELD}spec", f"{FIELD}replicas")

ReplicaPaths = Mapping[str, tuple[str, ...] | None]
"""apiVersion -> the path of the replicas in an object of that version; None where it cannot be scaled."""


def replica_paths(registry: Registry, resource: Resource) -> ReplicaPaths:
    """Of all served versions of a kind."""
    same_kind = (each for each in registry if (each.group, each.plural) == (resource.group, resource.plural))
    return {
        each.api_version: tuple(f"{FIELD}{part}" for part in each.scale.replicas) if each.scale is not None else None
        for each in same_kind
    }


def managers_of_scale(entries: list[Any], paths: ReplicaPaths) -> list[Document]:
    """Those who own the replicas of an object, as owners of its Scale."""
    owners: dict[Identity, Owned] = {}
    for who, owned in read(entries, trusted=True).items():
        path = paths.get(owned.api_version)
        if path is not None and has(owned.fields, path):
            owners[who] = Owned(_REPLICAS, _SCALE_VERSION, owned.time)
    return entries_of(owners)


def managers_of_scaled(
    entries: list[Any], scale_entries: list[Any], paths: ReplicaPaths, api_version: str
) -> list[Document]:
    """Those of the object, once its Scale has been written: who lost the replicas there has lost them here."""
    of_scale = read(scale_entries, trusted=True)
    known = read(entries, trusted=True)
    left: dict[Identity, Owned] = {}
    for who, owned in known.items():
        if owned.api_version not in paths:
            continue
        path = paths[owned.api_version]
        if path is None or not has(owned.fields, path):
            left[who] = owned
        elif who in of_scale:
            left[who] = owned
            del of_scale[who]
        elif fields := difference(owned.fields, of_paths(path)):
            left[who] = owned.left(fields)
    own = paths[api_version]
    for who, owned in of_scale.items():
        if own is not None and has(owned.fields, _REPLICAS_PATH):
            # The time of the Scale's manager is lost on the way, as it is by the real server.
            left[who] = Owned(of_paths(own), api_version, known[who].time if who in known else None)
    return entries_of(left)

"""The description of one built-in kind, from what distinguishes it from others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.cluster.resource import ALL_VERBS, Resource, ScalePaths, Strategy, View
from koordinator.cluster.strategy.object_strategy import ObjectStrategy

_ONLY_WITH_REVISION: Final = frozenset(
    {
        "leases", "poddisruptionbudgets", "customresourcedefinitions", "csidrivers", "csinodes", "csistoragecapacities",
        "volumeattachments", "runtimeclasses", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
        "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
    }
)  # fmt: skip
"""Kinds whose update must name the resourceVersion that it was made from."""
_RETURNED_WHEN_DELETED: Final = frozenset(
    {
        "pods", "namespaces", "services", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims",
        "podtemplates", "resourcequotas", "storageclasses", "csidrivers", "csinodes", "volumeattachments",
        "volumeattributesclasses", "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices",
    }
)  # fmt: skip


def built_in(
    api_version: str,
    plural: str,
    kind: str,
    *short_names: str,
    strategy: Strategy | None = None,
    namespaced: bool = True,
    generation: bool = False,
    subresources: tuple[str, ...] = (),
    views: Mapping[str, View] | None = None,
    categories: tuple[str, ...] = (),
    storage_version: bool = True,
    graceful_deletion: bool = False,
) -> Resource:
    group, _, version = api_version.rpartition("/")
    strategy = strategy or ObjectStrategy(
        api_version, kind, namespaced=namespaced, generation=generation, status="status" in subresources
    )
    return Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        strategy=strategy,
        singular=kind.lower(),
        short_names=short_names,
        categories=categories,
        subresources=(*subresources, *(views or ())),
        views=views or {},
        scale=ScalePaths() if "scale" in subresources else None,
        storage_version=storage_version,
        graceful_deletion=graceful_deletion,
        verbs=tuple(verb for verb in ALL_VERBS if (plural, verb) != ("namespaces", "deletecollection")),
        returns_deleted=plural in _RETURNED_WHEN_DELETED,
        unconditional_update=plural not in _ONLY_WITH_REVISION,
    )

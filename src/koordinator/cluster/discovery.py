"""What is served, in the two forms that clients request: one document per group version, or all in one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.access.identity import ALGORITHM, API_AUDIENCE
from koordinator.cluster.resource import VIEWS, Registry, Resource
from koordinator.cluster.verbs.subresources import CREATED_SUBRESOURCES

VERSION: Final[Document] = {
    "major": "1",
    "minor": "35",
    "emulationMajor": "1",
    "emulationMinor": "35",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "34",
    "gitVersion": "v1.35.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-12-17T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "linux/amd64",
}
ISSUER_PATH: Final = "/.well-known/openid-configuration"
KEY_SET_PATH: Final = "/openid/v1/jwks"
_SUBRESOURCE_KINDS: Final = {
    "binding": ("", "", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
"""Subresources whose body is another kind than their object's."""
_OBJECT_VERBS: Final = ["get", "patch", "update"]


def served_subresources(resource: Resource) -> list[str]:
    """Those of the kind's subresources that this server has code for."""
    created = [
        name for name in resource.subresources if (resource.group, resource.plural, name) in CREATED_SUBRESOURCES
    ]
    of_object = [name for name in VIEWS if name in resource.subresources]
    return created + of_object


def paths(registry: Registry, others: Iterable[str]) -> Document:
    """``/``: what is served; ``others`` are the paths that have nothing to do with kinds."""
    found = {"/api", "/apis", "/apis/", *others}
    for name, versions in registry.groups().items():
        root = f"/apis/{name}" if name else "/api"
        found |= {root, *(f"{root}/{version}" for version in versions)}
    return {"paths": sorted(found)}


def issuer(address: str) -> Document:
    """``/.well-known/openid-configuration``: how others check the tokens of ServiceAccounts. ``address`` is that of
    this server."""
    return {
        "issuer": API_AUDIENCE,
        "jwks_uri": f"https://{address}{KEY_SET_PATH}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }


def api_versions(address: str) -> Document:
    """``/api``; ``address`` is that of this server."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(registry: Registry) -> Document:
    """``/apis``"""
    groups = [_group(group, versions) for group, versions in registry.groups().items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Document | None:
    """``/apis/GROUP``; None when nothing is served there."""
    versions = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions and name else None


def resource_list(registry: Registry, group: str, version: str) -> Document | None:
    """``/api/v1`` and ``/apis/GROUP/VERSION``; None when nothing is served there."""
    resources = registry.in_version(group, version)
    if not resources:
        return None
    entries = [entry for resource in resources for entry in _entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def aggregated(registry: Registry, *, core: bool) -> Document:
    """``/api`` (core) or ``/apis`` as APIGroupDiscoveryList: everything in one response."""
    items: list[Document] = []
    for name, versions in registry.groups().items():
        if bool(name) != core:
            described = [_aggregated_version(registry, name, version) for version in versions]
            items.append({"metadata": {"name": name} if name else {}, "versions": described})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _group(name: str, versions: list[str]) -> Document:
    described = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": described, "preferredVersion": described[0]}


def _entries(resource: Resource) -> list[Document]:
    own: Document = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        own["shortNames"] = list(resource.short_names)
    if resource.categories:
        own["categories"] = list(resource.categories)
    return [own, *(_subresource_entry(resource, name) for name in served_subresources(resource))]


def _subresource_entry(resource: Resource, name: str) -> Document:
    entry: Document = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    if name in _SUBRESOURCE_KINDS:
        group, version, kind = _SUBRESOURCE_KINDS[name]
        entry |= {"group": group, "version": version} if group else {}
        return {**entry, "kind": kind, "verbs": _verbs(name)}
    return {**entry, "kind": resource.kind, "verbs": _verbs(name)}


def _verbs(subresource: str) -> list[str]:
    if subresource == "finalize":
        return ["update"]
    return _OBJECT_VERBS if subresource in VIEWS else ["create"]


def _aggregated_version(registry: Registry, group: str, version: str) -> Document:
    resources = [_aggregated_resource(resource) for resource in registry.in_version(group, version)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_resource(resource: Resource) -> Document:
    entry: Document = {
        "resource": resource.plural,
        "responseKind": _own_kind(resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    subresources = []
    for name in served_subresources(resource):
        foreign = _SUBRESOURCE_KINDS.get(name)
        kind = _own_kind(resource) if foreign is None else _kind(*foreign)
        subresources.append({"subresource": name, "responseKind": kind, "verbs": _verbs(name)})
    if subresources:
        entry["subresources"] = subresources
    return entry


def _own_kind(resource: Resource) -> Document:
    """The real server names the group and version of custom resources alone: built-in kinds have those of the list."""
    if resource.schema is None:
        return _kind("", "", resource.kind)
    return _kind(resource.group, resource.version, resource.kind)


def _kind(group: str, version: str, kind: str) -> Document:
    return {"group": group, "version": version, "kind": kind}

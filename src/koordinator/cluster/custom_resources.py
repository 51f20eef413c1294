"""CustomResourceDefinitions at work: each served version becomes a ``Resource`` the moment its definition is stored."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.cluster.registry import Registry
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Change, Stored
from koordinator.cluster.strategy.custom import CustomResourceStrategy
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.environment import Environment

DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


def resources_of(crd: Document) -> list[Resource]:
    """What a definition serves; its versions share their objects."""
    spec = crd["spec"]
    names = spec["names"]
    return [
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            strategy=CustomResourceStrategy(crd, version["name"]),
            singular=names.get("singular") or names["kind"].lower(),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in (version.get("subresources") or {})),
            storage_version=bool(version.get("storage")),
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
            unconditional_update=False,
        )
        for version in spec["versions"]
        if version.get("served")
    ]


class CustomResources:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, environment: Environment) -> None:
        definitions = environment.registry.stored(*DEFINITIONS)
        assert definitions is not None
        self._definitions = definitions
        self._storage = environment.storage
        self._registry: Registry = environment.registry

    def load(self) -> int:
        """Serve what is stored already; returns the revision to follow from."""
        page = self._storage.list(self._definitions.storage_prefix())
        for stored in page.items:
            self._serve(stored)
        return page.revision

    async def run(self, after: int) -> None:
        """Follow the definitions until the store closes.

        The store wakes watchers before it answers the writer, so a kind is served when its creator hears of it.
        """
        cursor = self._storage.watch(self._definitions.storage_prefix(), after)
        while (changes := await cursor.next()) is not None:
            for change in changes:
                self._follow(change)

    def _follow(self, change: Change) -> None:
        if change.previous is not None:
            spec = decode(self._definitions, change.previous)["spec"]
            self._remove(spec["group"], spec["names"]["plural"])
        if change.type != "deleted":
            self._serve(change.current)

    def _remove(self, group: str, plural: str) -> None:
        if not self._registry.is_built_in(group, plural):
            self._registry.remove(group, plural)

    def _serve(self, stored: Stored) -> None:
        for resource in resources_of(decode(self._definitions, stored)):
            if not self._registry.is_built_in(resource.group, resource.plural):
                self._registry.add(resource)

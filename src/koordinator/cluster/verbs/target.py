"""What a request is about, whatever its verb."""

from __future__ import annotations

from dataclasses import dataclass

from koordinator.cluster.resource import Resource


@dataclass(frozen=True, slots=True)
class Target:
    """One object, or with an empty name all objects of a kind in a namespace (None: in all namespaces)."""

    resource: Resource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        return self.resource.storage_key(self.namespace, self.name)

    @property
    def prefix(self) -> str:
        return self.resource.storage_prefix(self.namespace)

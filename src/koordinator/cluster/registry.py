"""Which kinds are served now: the built-in ones and those that CustomResourceDefinitions add at run time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordinator.cluster.resource import Resource


class Registry:
    """Resources by group, version and plural, in the order in which discovery lists them."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._stored: dict[tuple[str, str], Resource | None] = {}
        self.generation = 0
        """Changes whenever what is served does."""
        for resource in resources:
            self.add(resource)
        self._built_in = frozenset((group, plural) for group, _, plural in self._resources)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._resources.values()))

    def add(self, resource: Resource) -> None:
        self._resources[resource.group, resource.version, resource.plural] = resource
        self._changed()

    def remove(self, group: str, plural: str) -> None:
        """Stop serving every version."""
        for key in [key for key in self._resources if key[0] == group and key[2] == plural]:
            del self._resources[key]
        self._changed()

    def is_built_in(self, group: str, plural: str) -> bool:
        """Served from the start; no definition may take such a name over."""
        return (group, plural) in self._built_in

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def stored(self, group: str, plural: str) -> Resource | None:
        """The version of a kind that its objects are stored as."""
        key = (group, plural)
        if key not in self._stored:
            versions = [r for r in self._resources.values() if (r.group, r.plural) == key]
            self._stored[key] = next((r for r in versions if r.storage_version), versions[0] if versions else None)
        return self._stored[key]

    def groups(self) -> dict[str, list[str]]:
        """Group -> versions, the preferred one first; the core group is empty."""
        groups: dict[str, list[str]] = {}
        for group, version, _ in self._resources:
            versions = groups.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return {group: sorted(versions, key=_version_rank) for group, versions in groups.items()}

    def in_version(self, group: str, version: str) -> list[Resource]:
        return [r for r in self._resources.values() if r.group == group and r.version == version]

    def _changed(self) -> None:
        self._stored.clear()
        self.generation += 1


def _version_rank(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order: v10, v2, v1, v11beta2, v10beta3, v3beta1, v12alpha1, foo1."""
    body = version.removeprefix("v")
    for rank, stage in enumerate(("", "beta", "alpha")):
        major, separator, minor = body.partition(stage) if stage else (body, "", "0")
        if version.startswith("v") and bool(separator) == bool(stage) and major.isdigit() and minor.isdigit():
            return (rank, -int(major), -int(minor), version)
    return (3, 0, 0, version)

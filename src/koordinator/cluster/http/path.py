"""The grammar of resource paths: ``/api/v1/…`` and ``/apis/GROUP/VERSION/…``."""

from __future__ import annotations

from dataclasses import dataclass

_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The parts of a path below a group version; absent parts are empty (``namespace``: None)."""

    group: str
    version: str
    plural: str
    namespace: str | None
    name: str
    subresource: str


def parse_resource_path(path: str) -> ResourcePath | None:
    """None for a path that names no resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and (len(rest) > 3 or rest[2] not in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    if "" in rest:
        return None
    name = rest[1] if len(rest) > 1 else ""
    return ResourcePath(group, version, rest[0], namespace, name, "/".join(rest[2:]))

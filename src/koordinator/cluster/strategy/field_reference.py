"""References from a container's environment, or from a file, to a field of its pod or to an amount of its resources."""

from __future__ import annotations

import re
from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import label_key
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, not_supported, required

_CONVERTIBLE: Final = frozenset(
    {
        "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
        "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
    }
)  # fmt: skip
environment_fields: Final = frozenset(
    {
        "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
        "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
    }
)  # fmt: skip
downward_fields: Final = frozenset(
    {"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
)
_SUBSCRIPT: Final = re.compile(r"(.*)\['(.*)'\]")
_RESOURCES: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
_CPU: Final = ("1m", "1")
_BYTES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def field_reference(reference: Document, field: str, allowed: frozenset[str]) -> list[Cause]:
    """What is wrong with a ``fieldRef``."""
    version, path = reference.get("apiVersion") or "", reference.get("fieldPath") or ""
    at = f"{field}.fieldPath"
    if not version:
        return [required(f"{field}.apiVersion")]
    if not path:
        return [required(at)]
    subscript = _SUBSCRIPT.fullmatch(path)
    base = subscript[1] if subscript else path
    if version != "v1":
        return [invalid(at, path, f"error converting fieldPath: unsupported pod version: {version}")]
    if base not in _CONVERTIBLE or (subscript and base not in ("metadata.annotations", "metadata.labels")):
        return [invalid(at, path, f"error converting fieldPath: field label not supported: {base}")]
    if subscript:
        key = subscript[2].lower() if base == "metadata.annotations" else subscript[2]
        return [invalid(field, subscript[2], detail) for detail in label_key(key)]
    return [] if base in allowed else [not_supported(at, base, sorted(allowed))]


def resource_reference(reference: Document, field: str, *, needs_container: bool) -> list[Cause]:
    """What is wrong with a ``resourceFieldRef``; a file must say of which container it is."""
    resource, divisor = reference.get("resource") or "", reference.get("divisor") or "0"
    causes: list[Cause] = []
    if needs_container and not reference.get("containerName"):
        causes.append(required(f"{field}.containerName"))
    if not resource:
        return [*causes, required(f"{field}.resource")]
    huge = resource.startswith(("requests.hugepages-", "limits.hugepages-"))
    if resource not in _RESOURCES and not huge:
        return [*causes, not_supported(f"{field}.resource", resource, _RESOURCES)]
    kind = resource.partition(".")[2]
    allowed = _CPU if kind == "cpu" else _BYTES
    if divisor not in ("0", *allowed):
        only = f"only divisor's values {_enumerated(allowed)} are supported with the {kind} resource"
        # The real server shows the resource, not the divisor.
        causes.append(invalid(f"{field}.divisor", resource, only))
    return causes


def _enumerated(values: tuple[str, ...]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"

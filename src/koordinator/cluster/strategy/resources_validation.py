"""Resource lists of containers and nodes: names, quantities, and how requests relate to limits."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.api.names import label_key
from koordinator.api.quantity import Quantity
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, required

_STANDARD = ("cpu", "memory", "ephemeral-storage", "storage")
_MUST_BE_INTEGER = "must be an integer"


def is_extended(name: str) -> bool:
    """Resources of devices and the like: with a prefix that is not Kubernetes' own."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def check_container_resources(resources: Document, field: str) -> list[Cause]:
    """The real server's rules for ``resources`` of a container."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes: list[Cause] = []
    for name, text in limits.items():
        causes += check_name(name, f"{field}.limits[{name}]", container=True)
        causes += check_amount(name, text, f"{field}.limits[{name}]")
    for name, text in requests.items():
        causes += check_name(name, f"{field}.requests[{name}]", container=True)
        causes += check_amount(name, text, f"{field}.requests[{name}]")
        causes += _check_against_limit(name, text, limits, f"{field}.requests")
    return causes + [
        required(f"{field}.limits", "Limit must be set for non overcommitable resources")
        for name in requests
        if not _may_overcommit(name) and name not in limits
    ]


def _check_against_limit(name: str, text: str, limits: Document, field: str) -> list[Cause]:
    if name not in limits:
        return []
    request, limit = Quantity.parse(text), Quantity.parse(limits[name])
    if not _may_overcommit(name) and request != limit:
        return [invalid(field, text, f"must be equal to {name} limit of {limits[name]}")]
    if limit < request:
        return [invalid(field, text, f"must be less than or equal to {name} limit of {limits[name]}")]
    return []


def _may_overcommit(name: str) -> bool:
    return not is_extended(name) and not name.startswith("hugepages-")


def check_name(name: str, field: str, *, container: bool = False) -> list[Cause]:
    """Nodes may have resources of any name, containers only known ones and those with a prefix."""
    causes = [invalid(field, name, complaint) for complaint in label_key(name)]
    if not causes and container and "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        causes.append(invalid(field, name, "must be a standard resource type or fully qualified"))
        causes.append(invalid(field, name, "must be a standard resource for containers"))
    return causes


def check_amount(name: str, text: str, field: str) -> list[Cause]:
    """Never negative; whole numbers where a fraction means nothing."""
    quantity = Quantity.parse(text)
    causes = []
    if quantity.nanos < 0:
        causes.append(invalid(field, text, "must be greater than or equal to 0"))
    if is_extended(name) and quantity.milli % 1000:
        causes.append(invalid(field, text, _MUST_BE_INTEGER))
    return causes

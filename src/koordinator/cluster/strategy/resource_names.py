"""Which resources there are: those that Kubernetes knows by name, and any with a prefix."""

from __future__ import annotations

from typing import Final

from koordinator.api.names import label_key
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid

OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
OF_QUOTAS: Final = frozenset(
    {
        "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage",
        "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "pods",
        "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps",
        "services.nodeports", "services.loadbalancers", "storage",
    }
)  # fmt: skip
"""All that have names without a prefix, but for huge pages."""
HUGE_PAGES: Final = "hugepages-"
_QUOTAS_OF_PAGES: Final = (HUGE_PAGES, f"requests.{HUGE_PAGES}")
_UNQUALIFIED: Final = "must be a standard resource type or fully qualified"
_NOT_EXTENDED: Final = "doesn't follow extended resource name standard"


def is_extended(name: str) -> bool:
    """Resources of devices and the like: with a prefix that is not Kubernetes' own."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def is_standard(name: str) -> bool:
    return name in OF_QUOTAS or name.startswith(_QUOTAS_OF_PAGES)


def check_resource_name(name: str, field: str) -> list[Cause]:
    causes = [invalid(field, name, detail) for detail in label_key(name)]
    if not causes and "/" not in name and not is_standard(name):
        causes.append(invalid(field, name, _UNQUALIFIED))
    return causes


def check_name_of_container(name: str, field: str) -> list[Cause]:
    causes = check_resource_name(name, field)
    if "/" not in name:
        known = name in OF_CONTAINERS or name.startswith(HUGE_PAGES)
        return causes if known else [*causes, invalid(field, name, "must be a standard resource for containers")]
    is_native = "kubernetes.io/" in name
    if is_native or (is_extended(name) and not label_key(f"requests.{name}")):
        return causes
    return [*causes, invalid(field, name, _NOT_EXTENDED)]


def check_name_of_quota(name: str, field: str) -> list[Cause]:
    causes = check_resource_name(name, field)
    if "/" in name or is_standard(name):
        return causes
    return [*causes, invalid(field, name, "must be a standard resource for quota")]

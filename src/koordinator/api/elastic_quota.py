"""scheduling.sigs.k8s.io ElasticQuota: what a tenant is guaranteed and may grow to. Its tree is in labels."""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import ResourceList

ROOT_QUOTA: Final = "koordinator-root-quota"
SYSTEM_QUOTA: Final = "koordinator-system-quota"
DEFAULT_QUOTA: Final = "koordinator-default-quota"
BUILT_IN_QUOTAS: Final = (ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA)
"""Those that exist without an object of a user."""


class ElasticQuotaSpec(WireStruct):
    """The two bounds of a quota."""

    min: ResourceList = {}
    """Guaranteed."""
    max: ResourceList = {}
    """The most that can be used, borrowed resources included."""


class ElasticQuotaStatus(WireStruct):
    """What is used now."""

    used: ResourceList = {}
    """The requests of the quota's pods, added up."""


class ElasticQuota(Object):
    """What a tenant is guaranteed and may grow to. Quotas form a tree by their labels; what a quota does not use,
    others may borrow."""

    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()

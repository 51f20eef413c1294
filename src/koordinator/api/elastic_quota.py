"""scheduling.sigs.k8s.io ElasticQuota: what a tenant is guaranteed and may grow to. Its tree is in labels."""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import ResourceList

ROOT_QUOTA: Final = "koordinator-root-quota"
SYSTEM_QUOTA: Final = "koordinator-system-quota"
DEFAULT_QUOTA: Final = "koordinator-default-quota"


class ElasticQuotaSpec(WireStruct):
    min: ResourceList = {}
    """Guaranteed."""
    max: ResourceList = {}
    """The most that can be used, borrowed resources included."""


class ElasticQuotaStatus(WireStruct):
    used: ResourceList = {}


class ElasticQuota(Object):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()

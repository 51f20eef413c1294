"""quota.koordinator.sh ElasticQuotaProfile: a quota tree whose size follows a group of nodes."""

from __future__ import annotations

from typing import Annotated

from koordinator.api.constraints import RequiredText, Schema
from koordinator.api.meta import LabelSelector, Object, WireStruct


class ElasticQuotaProfileSpec(WireStruct):
    """Which nodes count, and which quota they make up."""

    quota_name: RequiredText = ""
    """The quota that is kept, in the profile's namespace."""
    quota_labels: dict[str, str] = {}
    """Labels that the quota gets."""
    resource_ratio: str | None = None
    """A number as text; the quota is the nodes' total times this."""
    node_selector: Annotated[LabelSelector | None, Schema(required=True)] = None
    """The nodes whose resources are added up."""


class ElasticQuotaProfileStatus(WireStruct):
    """Empty."""


class ElasticQuotaProfile(Object):
    """Keeps the root of a quota tree as large as a group of nodes."""

    spec: ElasticQuotaProfileSpec = ElasticQuotaProfileSpec()
    status: ElasticQuotaProfileStatus = ElasticQuotaProfileStatus()

"""The amounts of one quota, as the status and the HTTP API show them, and the gauges of all quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.api.annotations import QUOTA_UNSCHEDULABLE_RESOURCE
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA
from koordinator.model.quota_tree.annotation_values import read_amounts
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts, CountedPod
from koordinator.scheduler.plugins.elastic_quota.amounts import NOTHING, from_wire, to_wire
from koordinator.scheduler.plugins.elastic_quota.forest import QuotaNode

_NO_SHARE: Final = (ROOT_QUOTA, DEFAULT_QUOTA, SYSTEM_QUOTA)
"""Built-in quotas take no part in sharing, and so have no runtime."""


@dataclass(frozen=True, slots=True)
class QuotaSummary:
    """The amounts of a quota by resource; the field names are the original's."""

    name: str
    parent_name: str
    is_parent: bool
    allow_lent_resource: bool
    tree: str
    max: Mapping[str, int]
    min: Mapping[str, int]
    auto_scale_min: Mapping[str, int]
    """The min in effect: scaled down if the parent has less than the mins of its children together."""
    shared_weight: Mapping[str, int]
    runtime: Mapping[str, int]
    request: Mapping[str, int]
    child_request: Mapping[str, int]
    used: Mapping[str, int]
    non_preemptible_request: Mapping[str, int]
    non_preemptible_used: Mapping[str, int]
    guaranteed: Mapping[str, int]
    allocated: Mapping[str, int]
    self_request: Mapping[str, int]
    self_used: Mapping[str, int]
    self_non_preemptible_request: Mapping[str, int]
    self_non_preemptible_used: Mapping[str, int]


def summarize(accounts: Accounts, name: str) -> QuotaSummary | None:
    """The current amounts of the quota of this name; None if there is none."""
    forest = accounts.forest
    node = forest.roots[""] if name == ROOT_QUOTA else forest.nodes.get(name)
    if node is None:
        return None
    specification = node.specification
    shares = name not in _NO_SHARE
    return QuotaSummary(
        name=name,
        parent_name=specification.parent,
        is_parent=specification.is_parent,
        allow_lent_resource=forest.lends(node),
        tree=forest.tree_of(specification),
        max=specification.max,
        min=specification.min,
        auto_scale_min=forest.floor(node) if shares else NOTHING,
        shared_weight=specification.weight,
        runtime=forest.runtime(node) if shares else NOTHING,
        request=node.request,
        child_request=node.child_request,
        used=node.total.used,
        non_preemptible_request=node.total.non_preemptible_request,
        non_preemptible_used=node.total.non_preemptible_used,
        guaranteed=forest.guaranteed(node),
        allocated=forest.allocated(node),
        self_request=node.own.request,
        self_used=node.own.used,
        self_non_preemptible_request=node.own.non_preemptible_request,
        self_non_preemptible_used=node.own.non_preemptible_used,
    )


def published(summary: QuotaSummary) -> dict[str, Mapping[str, int]]:
    """The amounts written to the quota's annotations, by the part of the annotation's name after the slash."""
    return {
        "runtime": summary.runtime,
        "request": summary.request,
        "child-request": summary.child_request,
        "guaranteed": summary.guaranteed,
        "allocated": summary.allocated,
        "non-preemptible-request": summary.non_preemptible_request,
        "non-preemptible-used": summary.non_preemptible_used,
    }


def document_of(node: QuotaNode, summary: QuotaSummary, pods: Iterable[CountedPod]) -> dict[str, Any]:
    """The quota as a JSON document, as in the original's API. ``pods``: the pods to show, of those that count against
    the quota itself."""
    amounts = {
        "max": summary.max,
        "min": summary.min,
        "autoScaleMin": summary.auto_scale_min,
        "used": summary.used,
        "nonPreemptibleUsed": summary.non_preemptible_used,
        "request": summary.request,
        "nonPreemptibleRequest": summary.non_preemptible_request,
        "sharedWeight": summary.shared_weight,
        "runtime": summary.runtime,
        "childRequest": summary.child_request,
        "allocated": summary.allocated,
        "guaranteed": summary.guaranteed,
        "selfUsed": summary.self_used,
        "selfNonPreemptibleUsed": summary.self_non_preemptible_used,
        "selfRequest": summary.self_request,
        "selfNonPreemptibleRequest": summary.self_non_preemptible_request,
    }
    shown = {each.key: {"isAssigned": each.is_assigned, "resource": to_wire(each.kind.request)} for each in pods}
    return {
        "name": summary.name,
        "parentName": summary.parent_name,
        "isParent": summary.is_parent,
        "runtimeVersion": node.version,
        "allowLentResource": summary.allow_lent_resource,
        "tree": summary.tree,
        **{key: to_wire(value) for key, value in amounts.items()},
        **({"podCache": shown} if shown else {}),
    }


_NAME: Final = "scheduler_elastic_quota_status"
_LABELS: Final = ("name", "resource", "tree", "is_parent", "parent", "field")


class QuotaGauges(Collector):
    """The amounts of all quotas by field and resource; CPU in milli-CPUs."""

    def __init__(self, accounts: Callable[[], Accounts]) -> None:
        self._accounts = accounts

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(_NAME, "[ALPHA] ElasticQuota current status", labels=_LABELS)
        accounts = self._accounts()
        for quota in accounts.objects():
            summary = summarize(accounts, quota.metadata.name)
            if summary is None or accounts.object(summary.name) is not quota:
                continue
            fields: dict[str, Mapping[str, int]] = {
                **published(summary),
                "used": summary.used,
                "min": summary.min,
                "max": summary.max,
                "sharedWeight": summary.shared_weight,
            }
            text = quota.metadata.annotations.get(QUOTA_UNSCHEDULABLE_RESOURCE)
            if text:
                fields["unschedulable-resource"] = _read(text)
            about = (summary.tree, "true" if summary.is_parent else "false", summary.parent_name)
            for field, amounts in fields.items():
                for resource, amount in amounts.items():
                    family.add_metric((summary.name, resource, *about, field), amount)
        return [family]


def _read(text: str) -> Mapping[str, int]:
    try:
        return from_wire(read_amounts(text))
    except DecodeError:
        return {}

"""The gauges of all quotas, computed at each scrape, so that a deleted quota leaves none behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.api.annotations import QUOTA_UNSCHEDULABLE_RESOURCE
from koordinator.api.codec import DecodeError
from koordinator.model.quota_tree.annotation_values import read_amounts
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.amounts import from_wire
from koordinator.scheduler.plugins.elastic_quota.summary import published, summarize

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

"""The collect policy of a NodeMetric, and the format of its usage; for koordlet and for simulated nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from koordinator.api.nodemetric import USAGE_WITHOUT_PAGE_CACHE, NodeMetricSpec
from koordinator.api.quantity import Format, Quantity

DEFAULT_AGGREGATE_SECONDS: Final = 300
DEFAULT_REPORT_SECONDS: Final = 60
DEFAULT_DURATIONS: Final = (timedelta(minutes=5), timedelta(minutes=10), timedelta(minutes=30))
LEAST_AGGREGATE_SECONDS: Final = 60
LEAST_REPORT_SECONDS: Final = 30
COLD_SHARE: Final = 0.5
"""A window is dropped if its samples span less than this share of it."""


@dataclass(frozen=True, slots=True)
class CollectPolicy:
    """How a node is measured. ``durations`` is None when no percentiles are requested."""

    aggregate_seconds: int = DEFAULT_AGGREGATE_SECONDS
    report_seconds: int = DEFAULT_REPORT_SECONDS
    durations: tuple[timedelta, ...] | None = DEFAULT_DURATIONS
    memory: str = USAGE_WITHOUT_PAGE_CACHE
    """Which memory counts as used: USAGE_WITHOUT_PAGE_CACHE, USAGE_WITH_PAGE_CACHE or USAGE_WITH_HOT_PAGE_CACHE."""


def collect_policy(spec: NodeMetricSpec) -> CollectPolicy:
    """The policy of a NodeMetric, with koordlet's defaults for missing values and its minimums for too small ones."""
    given = spec.metric_collect_policy
    if given is None:
        return CollectPolicy()
    aggregate = given.aggregate_duration_seconds
    report = given.report_interval_seconds
    percentiles = given.node_aggregate_policy
    return CollectPolicy(
        aggregate_seconds=max(LEAST_AGGREGATE_SECONDS, DEFAULT_AGGREGATE_SECONDS if aggregate is None else aggregate),
        report_seconds=max(LEAST_REPORT_SECONDS, DEFAULT_REPORT_SECONDS if report is None else report),
        durations=DEFAULT_DURATIONS if percentiles is None else tuple(percentiles.durations),
        memory=given.node_memory_collect_policy or USAGE_WITHOUT_PAGE_CACHE,
    )


def resource_map(cores: float, memory: float) -> dict[str, Any]:
    """A usage in the wire format: whole milli-CPU and whole bytes, both rounded down."""
    return {
        "resources": {
            "cpu": str(Quantity.from_milli(int(cores * 1000))),
            "memory": str(Quantity.from_value(int(memory), Format.BINARY_SI)),
        }
    }

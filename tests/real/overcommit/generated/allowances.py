"""Which of the intended differences a generated node may show: those that its documents give reason for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import convert
from koordinator.api.colocation_strategy import CALCULATE_BY_MAX_USAGE_REQUEST, ColocationStrategy
from koordinator.api.node import Node
from koordinator.api.quantity import parse_quantity
from koordinator.model.slo_configuration.colocation import node_colocation_strategy
from koordinator.model.slo_configuration.configuration import Configured, SLOConfiguration
from tests.real.overcommit import differences
from tests.real.overcommit.generated.nodes import LARGE_DIFFERENCE
from tests.real.overcommit.node_case import Document, NodeCase

_RATIO_LABELS: Final = (
    label_keys.CPU_RECLAIM_RATIO,
    label_keys.MEMORY_RECLAIM_RATIO,
    label_keys.MID_STATIC_CPU_RESERVED_RATIO,
    label_keys.MID_STATIC_MEMORY_RESERVED_RATIO,
)


def allowances(case: NodeCase, configuration: SLOConfiguration, before: Document, after: Document) -> frozenset[str]:
    """By the configuration that is in force, and by the annotations of the node before and after it came."""
    node = convert(case.node, Node)
    colocation = configuration.colocation.strategies
    strategy, _ = node_colocation_strategy(colocation, node.metadata)
    is_on = bool(colocation.cluster.enable and strategy.enable)
    return frozenset(
        [
            *_of_the_report(case, strategy, is_on),
            *_of_devices(case, is_on),
            *_of_words(node, configuration),
            *_of_groups(node, configuration),
            *_of_changes(before, after, is_on),
        ]
    )


def _of_the_report(case: NodeCase, strategy: ColocationStrategy, is_on: bool) -> Iterator[str]:
    is_fresh = case.report is not None and case.report_age is not None and _is_fresh(case.report_age, strategy)
    if case.topology is not None:
        if not (is_on and is_fresh):
            yield differences.ZONES_ZEROED
        if strategy.resource_diff_threshold == LARGE_DIFFERENCE:
            yield differences.ZONES_UP_TO_DATE
    yield differences.WHOLE_UNITS
    by_most = CALCULATE_BY_MAX_USAGE_REQUEST in (strategy.cpu_calculate_policy, strategy.memory_calculate_policy)
    if is_on and is_fresh and by_most and _has_unmeasured(case):
        yield differences.UNMEASURED_BY_REQUEST
    if is_on and is_fresh and _is_memory_wrapped(case):
        yield differences.WRAPPED


def _is_memory_wrapped(case: NodeCase) -> bool:
    """Whether more is used than there is, and one of both is written as a fraction of Gi."""
    assert case.report is not None
    used = case.report["nodeMetric"]["nodeUsage"].get("resources", {}).get("memory", "0")
    capacity = case.node["status"]["capacity"].get("memory", "0")
    is_exceeded = parse_quantity(used).nanos > parse_quantity(capacity).nanos
    return is_exceeded and any(text.endswith(".5Gi") for text in (used, capacity))


def _is_fresh(age: float, strategy: ColocationStrategy) -> bool:
    minutes = strategy.degrade_time_minutes
    assert minutes is not None, "the cluster's strategy has a default"
    return timedelta(seconds=age) < timedelta(minutes=minutes)


def _has_unmeasured(case: NodeCase) -> bool:
    assert case.report is not None
    measured = {each["name"] for each in case.report.get("podsMetric", ()) if each["namespace"] != "elsewhere"}
    return any(
        each.document["metadata"]["name"] not in measured for each in case.pods if each.phase in ("Running", "Pending")
    )


def _of_devices(case: NodeCase, is_on: bool) -> Iterator[str]:
    offered: Mapping[str, Any] = case.node["status"]["capacity"]
    if not is_on:
        yield differences.DEVICES_WITHOUT_COLOCATION
    if any(name.startswith("koordinator.sh/") for name in offered):
        yield differences.DEVICE_NAMES_REMOVED


def _of_words(node: Node, configuration: SLOConfiguration) -> Iterator[str]:
    labels = node.metadata.labels
    if any(_is_cut(labels[key]) for key in _RATIO_LABELS if key in labels):
        yield differences.RATIO_ROUNDED
    ratios = configuration.resource_amplification.strategies.for_labels(labels).resource_amplification_ratio
    if min(ratios.values(), default=1) < 1:
        yield differences.AMPLIFICATION_KEPT


def _is_cut(text: str) -> bool:
    """Whether a ratio is no whole number of percents as a binary fraction."""
    try:
        percent = float(text) * 100
    except ValueError:
        return False
    return percent != int(percent)


def _of_changes(before: Document, after: Document, is_on: bool) -> Iterator[str]:
    key = annotation_keys.CPU_NORMALIZATION_RATIO
    if not is_on:
        yield differences.RATIO_BETWEEN_KEYS
    if before.get(key) != after.get(key):
        yield differences.AMPLIFICATION_BEHIND


def _of_groups(node: Node, configuration: SLOConfiguration) -> Iterator[str]:
    if _is_in_group(configuration.system, node):
        yield differences.BANDWIDTH_INHERITED
    if _is_in_group(configuration.resource_qos, node):
        yield differences.BLOCKS_REPLACED


def _is_in_group(configured: Configured[Any], node: Node) -> bool:
    return next(configured.strategies.matching(node.metadata.labels), None) is not None

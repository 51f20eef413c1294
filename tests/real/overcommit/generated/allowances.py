"""Which of the intended differences a generated node may show: those that its documents give reason for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api import slo_controller_config
from tests.real.overcommit import differences
from tests.real.overcommit.amounts import amount
from tests.real.overcommit.generated.nodes import LARGE_DIFFERENCE
from tests.real.overcommit.generated.readings import PossibleConfigurations, PossibleStrategy
from tests.real.overcommit.node_case import Document, NodeCase

_RATIO_LABELS: Final = (
    label_keys.CPU_RECLAIM_RATIO,
    label_keys.MEMORY_RECLAIM_RATIO,
    label_keys.MID_STATIC_CPU_RESERVED_RATIO,
    label_keys.MID_STATIC_MEMORY_RESERVED_RATIO,
)


def allowances(
    case: NodeCase, configurations: PossibleConfigurations, before: Document, after: Document
) -> frozenset[str]:
    """By the documents of the node and by what the ConfigMap can amount to; none of our code is queried.

    ``before`` and ``after``: the node's annotations as the original wrote them in the step before and in this one.
    """
    labels, annotations = case.node["metadata"]["labels"], case.node["metadata"]["annotations"]
    allowed = {differences.WHOLE_UNITS, *_of_words(labels, configurations), *_of_groups(labels, configurations)}
    if before.get(annotation_keys.CPU_NORMALIZATION_RATIO) != after.get(annotation_keys.CPU_NORMALIZATION_RATIO):
        allowed.add(differences.AMPLIFICATION_BEHIND)
    if any(name.startswith("koordinator.sh/") for name in case.node["status"]["capacity"]):
        allowed.add(differences.DEVICE_NAMES_REMOVED)
    for strategy in configurations.strategies(labels, annotations.get(annotation_keys.COLOCATION_STRATEGY)):
        allowed |= {*_of_strategy(case, strategy)}
    return frozenset(allowed)


def _of_strategy(case: NodeCase, strategy: PossibleStrategy) -> Iterator[str]:
    offers = strategy.is_on and _is_fresh(case, strategy.fields["degradeTimeMinutes"])
    if not strategy.is_on:
        yield differences.DEVICES_WITHOUT_COLOCATION
        yield differences.RATIO_BETWEEN_KEYS
    if case.topology is not None:
        if not offers:
            yield differences.ZONES_ZEROED
        if strategy.fields.get("resourceDiffThreshold") == LARGE_DIFFERENCE:
            yield differences.ZONES_UP_TO_DATE
    policies = {strategy.fields.get("cpuCalculatePolicy"), strategy.fields.get("memoryCalculatePolicy")}
    if offers and "maxUsageRequest" in policies and _has_unmeasured(case):
        yield differences.UNMEASURED_BY_REQUEST
    if offers and _is_memory_wrapped(case):
        yield differences.WRAPPED


def _is_fresh(case: NodeCase, minutes: int) -> bool:
    return case.report is not None and case.report_age is not None and case.report_age < minutes * 60


def _is_memory_wrapped(case: NodeCase) -> bool:
    """Whether more is used than there is, and one of both is written as a fraction of Gi."""
    assert case.report is not None
    used = case.report["nodeMetric"]["nodeUsage"].get("resources", {}).get("memory", "0")
    capacity = case.node["status"]["capacity"].get("memory", "0")
    is_exceeded = amount(used) > amount(capacity)
    return is_exceeded and any(text.endswith(".5Gi") for text in (used, capacity))


def _has_unmeasured(case: NodeCase) -> bool:
    assert case.report is not None
    measured = {each["name"] for each in case.report.get("podsMetric", ()) if each["namespace"] != "elsewhere"}
    return any(
        each.document["metadata"]["name"] not in measured for each in case.pods if each.phase in ("Running", "Pending")
    )


def _of_words(labels: Mapping[str, str], configurations: PossibleConfigurations) -> Iterator[str]:
    if any(_is_cut(labels[key]) for key in _RATIO_LABELS if key in labels):
        yield differences.RATIO_ROUNDED
    if any(value < 1 for ratios in configurations.amplification_ratios(labels) for value in _numbers(ratios)):
        yield differences.AMPLIFICATION_KEPT


def _numbers(ratios: Document) -> Iterator[float]:
    """Go reads a null among the values of a map as 0."""
    return (value or 0 for value in ratios.values() if value is None or isinstance(value, int | float))


def _is_cut(text: str) -> bool:
    """Whether a ratio is no whole number of percents as a binary fraction."""
    try:
        percent = float(text) * 100
    except ValueError:
        return False
    return percent != int(percent)


def _of_groups(labels: Mapping[str, str], configurations: PossibleConfigurations) -> Iterator[str]:
    if configurations.may_be_in_group(slo_controller_config.SYSTEM, labels):
        yield differences.BANDWIDTH_INHERITED
    if configurations.may_be_in_group(slo_controller_config.RESOURCE_QOS, labels):
        yield differences.BLOCKS_REPLACED

"""The colocation strategy of one node, and its policy for measuring the node.

A node may have a strategy of its own in an annotation, and four ratios as labels; these take precedence over everything
in the ConfigMap (pkg/util/sloconfig/colocation_config.go, GetNodeColocationStrategy).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from koordinator.api import labels
from koordinator.api.annotations import COLOCATION_STRATEGY
from koordinator.api.codec import DecodeError
from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.meta import ObjectMeta
from koordinator.api.nodemetric import NodeMetricCollectPolicy
from koordinator.model.slo_configuration.configuration_keys import COLOCATION, colocation_errors
from koordinator.model.slo_configuration.documents import Given, overridden, read_given, read_object
from koordinator.model.slo_configuration.node_strategies import StrategySet

_RATIO_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        labels.CPU_RECLAIM_RATIO: "cpu_reclaim_threshold_percent",
        labels.MEMORY_RECLAIM_RATIO: "memory_reclaim_threshold_percent",
        labels.MID_STATIC_CPU_RESERVED_RATIO: "mid_static_cpu_reserved_percent",
        labels.MID_STATIC_MEMORY_RESERVED_RATIO: "mid_static_memory_reserved_percent",
    }
)
_RATIO: Final = re.compile(r"(\d{1,9}(\.\d{0,18})?|\.\d{1,18})([eE]-?\d)?")


def node_colocation_strategy(
    strategies: StrategySet[ColocationStrategy], node: ObjectMeta
) -> tuple[ColocationStrategy, tuple[str, ...]]:
    """The strategy of a node, and the parts of its annotation and labels that were ignored because they are invalid."""
    strategy = strategies.for_labels(node.labels)
    problems: list[str] = []
    own = node.annotations.get(COLOCATION_STRATEGY)
    if own is not None:
        strategy = _with_annotation(strategy, own, problems)
    percents = {}
    for label, field in _RATIO_LABELS.items():
        text = node.labels.get(label)
        if text is None:
            continue
        percent = _percent(text)
        if percent is None:
            problems.append(f"label {label}: {text!r} is not a ratio: write a number of 0 or greater such as 0.6")
        else:
            percents[field] = percent
    return msgspec.structs.replace(strategy, **percents) if percents else strategy, tuple(problems)


def metric_collect_policy(strategy: ColocationStrategy) -> NodeMetricCollectPolicy:
    """The policy of a node's NodeMetric; the defaults where colocation is disabled.

    ``strategy`` must have passed the checks, as all those of a configuration and of nodes have.
    """
    source = strategy if strategy.enable else COLOCATION.defaults
    return NodeMetricCollectPolicy(
        aggregate_duration_seconds=source.metric_aggregate_duration_seconds,
        report_interval_seconds=source.metric_report_interval_seconds,
        node_aggregate_policy=source.metric_aggregate_policy,
        node_memory_collect_policy=source.metric_memory_collect_policy,
    )


def _with_annotation(strategy: ColocationStrategy, text: str, problems: list[str]) -> ColocationStrategy:
    try:
        own = overridden(strategy, _read_annotation(text))
    except DecodeError as error:
        problems.append(f"annotation {COLOCATION_STRATEGY}: {error}")
        return strategy
    errors = colocation_errors(own)
    if errors:
        problems.append(f"annotation {COLOCATION_STRATEGY}: {errors[0]}")
        return strategy
    return own


@lru_cache(maxsize=1024)
def _read_annotation(text: str) -> Given[ColocationStrategy]:
    return read_given(read_object(text), ColocationStrategy)


def _percent(ratio: str) -> int | None:
    """To the nearest whole percent, exactly as written: 0.29 is 29, though its nearest binary fraction is below."""
    if _RATIO.fullmatch(ratio) is None:
        return None
    return int((Decimal(ratio) * 100).quantize(Decimal(1), rounding=ROUND_HALF_UP))

"""A node's annotation and labels go before the ConfigMap, as far as they can be used."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.duration import GoDuration
from koordinator.api.meta import ObjectMeta
from koordinator.api.nodemetric import AggregatePolicy, NodeMetricCollectPolicy
from koordinator.model.slo_configuration.colocation import metric_collect_policy, node_colocation_strategy
from koordinator.model.slo_configuration.configuration_keys import COLOCATION
from koordinator.model.slo_configuration.node_strategies import StrategySet

_ANNOTATION = "node.koordinator.sh/colocation-strategy"
_STRATEGIES = StrategySet(msgspec.structs.replace(COLOCATION.defaults, enable=True))


def _with_label(label: str, text: str) -> tuple[ColocationStrategy, tuple[str, ...]]:
    node = ObjectMeta(labels={f"node.koordinator.sh/{label}": text})
    return node_colocation_strategy(_STRATEGIES, node)


def test_a_node_without_either_has_the_configured_strategy() -> None:
    assert node_colocation_strategy(_STRATEGIES, ObjectMeta()) == (_STRATEGIES.cluster, ())


def test_the_annotation_is_merged_onto_the_configured_strategy() -> None:
    text = '{"cpuReclaimThresholdPercent": 0, "memoryReclaimThresholdPercent": null, "midStaticCPUReservedPercent": 10}'
    strategy, problems = node_colocation_strategy(_STRATEGIES, ObjectMeta(annotations={_ANNOTATION: text}))
    expected = msgspec.structs.replace(
        _STRATEGIES.cluster, cpu_reclaim_threshold_percent=0, mid_static_cpu_reserved_percent=10
    )
    assert (strategy, problems) == (expected, ())


@pytest.mark.parametrize(
    "text",
    [
        "invalidField",
        '{"enable": 1}',
        '{"degradeTimeMinutes": 0}',
        '{"extensions": {"abnormalNodes": {"raiseAfter": 3}}}',
        "",
    ],
)
def test_an_annotation_that_cannot_be_used_is_ignored_and_reported(text: str) -> None:
    strategy, problems = node_colocation_strategy(_STRATEGIES, ObjectMeta(annotations={_ANNOTATION: text}))
    assert strategy == _STRATEGIES.cluster
    assert [_ANNOTATION in problem for problem in problems] == [True]


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("cpu-reclaim-ratio", "cpu_reclaim_threshold_percent"),
        ("memory-reclaim-ratio", "memory_reclaim_threshold_percent"),
        ("mid-static-cpu-reserved-ratio", "mid_static_cpu_reserved_percent"),
        ("mid-static-memory-reserved-ratio", "mid_static_memory_reserved_percent"),
    ],
)
def test_each_ratio_sets_one_percentage(label: str, field: str) -> None:
    expected = msgspec.structs.replace(_STRATEGIES.cluster, **{field: 12})
    assert _with_label(label, "0.12") == (expected, ())


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("0.6", 60),
        ("1.0", 100),
        ("0.29", 29),
        ("0.57", 57),
        ("0.125", 13),
        ("1", 100),
        ("0", 0),
        (".5", 50),
        ("2.", 200),
        ("1e-1", 10),
        ("25E-2", 25),
        ("0.07e1", 70),
    ],
)
def test_a_ratio_is_rounded_to_the_nearest_percent(text: str, percent: int) -> None:
    assert _with_label("cpu-reclaim-ratio", text)[0].cpu_reclaim_threshold_percent == percent


@pytest.mark.parametrize("text", ["-1", "invalidField", "", "NaN", "inf", "1e", "0x1", "1_0", "9" * 63])
def test_a_label_that_is_no_ratio_is_ignored_and_reported(text: str) -> None:
    strategy, problems = _with_label("cpu-reclaim-ratio", text)
    assert strategy == _STRATEGIES.cluster
    assert len(problems) == 1


@given(st.integers(0, 1000))
def test_every_whole_percentage_is_kept(percent: int) -> None:
    assert _with_label("cpu-reclaim-ratio", f"{percent / 100:.2f}")[0].cpu_reclaim_threshold_percent == percent


def test_labels_go_before_the_annotation() -> None:
    node = ObjectMeta(
        labels={"node.koordinator.sh/cpu-reclaim-ratio": "0.8"},
        annotations={_ANNOTATION: json.dumps({"cpuReclaimThresholdPercent": 100})},
    )
    assert node_colocation_strategy(_STRATEGIES, node)[0].cpu_reclaim_threshold_percent == 80


def test_the_collect_policy_is_that_of_the_strategy() -> None:
    policy = AggregatePolicy(durations=[GoDuration(minutes=1)])
    strategy = ColocationStrategy(
        enable=True,
        metric_aggregate_duration_seconds=30,
        metric_report_interval_seconds=10,
        metric_aggregate_policy=policy,
        metric_memory_collect_policy="usageWithPageCache",
    )
    assert metric_collect_policy(strategy) == NodeMetricCollectPolicy(
        aggregate_duration_seconds=30,
        report_interval_seconds=10,
        node_aggregate_policy=policy,
        node_memory_collect_policy="usageWithPageCache",
    )


@pytest.mark.parametrize("enable", [False, None])
def test_the_collect_policy_of_a_node_without_colocation_is_the_default(enable: bool | None) -> None:
    strategy = msgspec.structs.replace(COLOCATION.defaults, enable=enable, metric_report_interval_seconds=10)
    assert metric_collect_policy(strategy).report_interval_seconds == 60

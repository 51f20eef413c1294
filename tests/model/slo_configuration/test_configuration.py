"""One broken key leaves that key as it was, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.duration import GoDuration
from koordinator.api.node import Node
from koordinator.api.nodemetric import AggregatePolicy
from koordinator.model.slo_configuration.configuration import Configured, SLOConfiguration
from koordinator.model.slo_configuration.configuration_keys import ALL_KEYS, COLOCATION

_FIELDS = {
    "colocation-config": "colocation",
    "resource-threshold-config": "resource_threshold",
    "resource-qos-config": "resource_qos",
    "cpu-burst-config": "cpu_burst",
    "system-config": "system",
    "host-application-config": "host_applications",
    "cpu-normalization-config": "cpu_normalization",
    "resource-amplification-config": "resource_amplification",
    "adaptive-slo-config": "adaptive_slo",
}
_GOOD: Mapping[str, Any] = {
    "colocation-config": {"enable": True},
    "resource-threshold-config": {"clusterStrategy": {"enable": True}},
    "resource-qos-config": {"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": True}}}},
    "cpu-burst-config": {"clusterStrategy": {"policy": "auto"}},
    "system-config": {"clusterStrategy": {"minFreeKbytesFactor": 150}},
    "host-application-config": {"applications": [{"name": "nginx"}]},
    "cpu-normalization-config": {"enable": True, "defaultRatio": 1.2},
    "resource-amplification-config": {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}},
    "adaptive-slo-config": {"clusterStrategy": {"enable": True, "steps": 3}},
}
_BROKEN = st.sampled_from(["invalid_content", "[]", '{"enable": "yes", "clusterStrategy": 1, "applications": 2}', "{"])


def _data(documents: Mapping[str, Any]) -> dict[str, str]:
    return {key: json.dumps(document) for key, document in documents.items()}


def _key(configuration: SLOConfiguration, key: str) -> Configured[Any]:
    value: Configured[Any] = getattr(configuration, _FIELDS[key])
    return value


def test_every_key_has_its_place() -> None:
    assert {key.name for key in ALL_KEYS} == set(_FIELDS)


def test_before_the_first_look_nothing_is_available() -> None:
    configuration = SLOConfiguration()
    assert not configuration.node_slo_available
    assert not any(_key(configuration, key).available for key in _FIELDS)


@pytest.mark.parametrize("data", [None, {}])
def test_without_a_key_its_defaults_are_available(data: Mapping[str, str] | None) -> None:
    configuration, problems = SLOConfiguration().updated(data)
    assert problems == ()
    for key in ALL_KEYS:
        assert _key(configuration, key.name).available
        assert _key(configuration, key.name).strategies.cluster == key.defaults


def test_without_a_config_map_only_colocation_is_in_doubt() -> None:
    configuration, _ = SLOConfiguration().updated(None)
    assert [key for key in _FIELDS if _key(configuration, key).in_error] == ["colocation-config"]


def test_an_empty_colocation_config_is_none_and_any_other_empty_key_is_broken() -> None:
    configuration, problems = SLOConfiguration().updated(dict.fromkeys(_FIELDS, ""))
    assert {problem.key for problem in problems} == set(_FIELDS) - {"colocation-config"}
    assert not configuration.colocation.in_error


@pytest.mark.parametrize(
    ("key", "reason", "start"),
    [
        ("colocation-config", "ColocationCfgUnmarshalFailed", "failed to unmarshal colocation config, err: "),
        ("resource-threshold-config", "SLOCfgUnmarshalFailed", "failed to unmarshal ThresholdCfg, err: "),
        ("resource-qos-config", "SLOCfgUnmarshalFailed", "failed to unmarshal ResourceQOSCfg, err: "),
        ("cpu-burst-config", "SLOCfgUnmarshalFailed", "failed to unmarshal CPUBurstCfg, err: "),
        ("system-config", "SLOCfgUnmarshalFailed", "failed to unmarshal SystemCfg, err: "),
        ("host-application-config", "SLOCfgUnmarshalFailed", "failed to unmarshal HostApplicationCfg, err: "),
        (
            "cpu-normalization-config",
            "CPUNormalizationCfgUnmarshalFailed",
            "failed to unmarshal CPUNormalizationCfg, err: ",
        ),
        (
            "resource-amplification-config",
            "ResourceAmplificationCfgUnmarshalFailed",
            "failed to unmarshal amplificationCfg, err: ",
        ),
    ],
)
def test_a_broken_key_is_reported_by_an_event(key: str, reason: str, start: str) -> None:
    _, (problem,) = SLOConfiguration().updated({key: "invalid_content"})
    assert (problem.key, problem.reason) == (key, reason)
    assert problem.message.startswith(start)


@given(st.sampled_from(sorted(_FIELDS)), _BROKEN)
def test_a_broken_key_leaves_itself_as_it_was_and_all_others_as_they_would_be(broken: str, text: str) -> None:
    before, _ = SLOConfiguration().updated(_data(_GOOD))
    others = {key: value for key, value in _data({**_GOOD, "cpu-burst-config": {}}).items() if key != broken}
    without, _ = before.updated(others)
    after, problems = before.updated({**others, broken: text})
    assert [problem.key for problem in problems] == [broken]
    assert _key(after, broken).strategies == _key(before, broken).strategies
    assert _key(after, broken).in_error
    assert all(_key(after, key) == _key(without, key) for key in _FIELDS if key != broken)


def test_keys_of_node_slos_fall_back_to_defaults_when_the_first_value_is_broken_and_others_to_nothing() -> None:
    configuration, _ = SLOConfiguration().updated(dict.fromkeys(_FIELDS, "{"))
    unavailable = [key for key in _FIELDS if not _key(configuration, key).available]
    assert unavailable == ["colocation-config", "cpu-normalization-config", "resource-amplification-config"]
    assert configuration.node_slo_available


def test_a_value_that_works_again_ends_the_error() -> None:
    broken, _ = SLOConfiguration().updated({"colocation-config": "{"})
    mended, _ = broken.updated({"colocation-config": '{"enable":true}'})
    assert (mended.colocation.in_error, mended.colocation.available) == (False, True)


def test_the_same_data_makes_an_equal_configuration() -> None:
    once, _ = SLOConfiguration().updated(_data(_GOOD))
    assert once.updated(_data(_GOOD))[0] == once


def test_defaults_of_colocation() -> None:
    durations = [GoDuration(minutes=5), GoDuration(minutes=10), GoDuration(minutes=30)]
    assert COLOCATION.defaults.metric_aggregate_policy == AggregatePolicy(durations=durations)


@pytest.mark.parametrize(
    "document",
    [
        {"degradeTimeMinutes": 0},
        {"metricAggregateDurationSeconds": -1},
        {"metricReportIntervalSeconds": 0},
        {"updateTimeThresholdSeconds": 0},
        {"cpuReclaimThresholdPercent": -1},
        {"memoryReclaimThresholdPercent": -1},
        {"resourceDiffThreshold": 0},
        {"metricMemoryCollectPolicy": ""},
        {"metricMemoryCollectPolicy": "usage"},
        {"midCPUThresholdPercent": 101},
        {"midMemoryThresholdPercent": -1},
        {"midUnallocatedPercent": 101},
        {"midStaticCPUReservedPercent": -1},
        {"midStaticMemoryReservedPercent": -1},
        {"batchCPUThresholdPercent": -1},
        {"batchMemoryThresholdPercent": -1},
    ],
)
def test_a_colocation_strategy_that_cannot_be_acted_upon_keeps_the_old(document: Mapping[str, Any]) -> None:
    before, _ = SLOConfiguration().updated({"colocation-config": '{"enable":true}'})
    after, (problem,) = before.updated(_data({"colocation-config": document}))
    assert after.colocation.strategies == before.colocation.strategies
    assert after.colocation.in_error
    assert next(iter(document)) in problem.message


@pytest.mark.parametrize(
    "document",
    [{"midStaticCPUReservedPercent": 150}, {"cpuReclaimThresholdPercent": 150}, {"resourceDiffThreshold": 2}],
)
def test_what_only_the_webhook_refuses_is_acted_upon(document: Mapping[str, Any]) -> None:
    assert SLOConfiguration().updated(_data({"colocation-config": document}))[1] == ()


def test_a_group_of_nodes_with_an_unusable_strategy_gets_that_of_the_cluster() -> None:
    node = {"name": "a", "nodeSelector": {"matchLabels": {"xxx": "yyy"}}, "degradeTimeMinutes": -1, "enable": False}
    configuration, (problem,) = SLOConfiguration().updated(
        _data({"colocation-config": {"enable": True, "nodeConfigs": [node]}})
    )
    strategies = configuration.colocation.strategies
    assert strategies.for_labels({"xxx": "yyy"}) == strategies.cluster
    assert not configuration.colocation.in_error
    assert "degradeTimeMinutes" in problem.message


def test_a_value_that_no_node_slo_could_hold_is_not_taken() -> None:
    data = _data({"resource-threshold-config": {"clusterStrategy": {"cpuSuppressThresholdPercent": 101}}})
    configuration, (problem,) = SLOConfiguration().updated(data)
    assert configuration.resource_threshold.strategies.cluster.cpu_suppress_threshold_percent == 65
    assert "cpuSuppressThresholdPercent" in problem.message


def test_a_selector_that_cannot_be_read_is_reported() -> None:
    selector = {"matchExpressions": [{"key": "xxx", "operator": "out", "values": ["yyy"]}]}
    data = _data({"cpu-burst-config": {"nodeStrategies": [{"name": "a", "nodeSelector": selector}]}})
    _, (problem,) = SLOConfiguration().updated(data)
    assert "'out'" in problem.message


class _Counted:
    """An extension that counts the keys of the ConfigMap."""

    key = "counted"
    default: Any = 0

    def merge(self, old: Any, data: Mapping[str, str]) -> Any:
        if "broken" in data:
            raise ZeroDivisionError("broken")
        return len(data)

    def for_node(self, node: Node, configuration: Any) -> Any | None:
        return configuration or None


def test_extensions_are_configured_with_the_rest() -> None:
    configuration, _ = SLOConfiguration.with_extensions((_Counted(),)).updated({"a": "", "b": ""})
    assert [each.configuration for each in configuration.extensions] == [2]


def test_an_extension_that_fails_keeps_its_old_configuration() -> None:
    before, _ = SLOConfiguration.with_extensions((_Counted(),)).updated({"a": "", "b": ""})
    after, (problem,) = before.updated({"broken": ""})
    assert after.extensions == before.extensions
    assert (problem.key, problem.reason) == ("counted", "SLOCfgUnmarshalFailed")


def test_without_a_config_map_extensions_have_their_defaults() -> None:
    before, _ = SLOConfiguration.with_extensions((_Counted(),)).updated({"a": ""})
    assert [each.configuration for each in before.updated(None)[0].extensions] == [0]

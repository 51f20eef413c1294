"""What the webhooks refuse, and in which order they look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordinator.api.meta import ObjectMeta
from koordinator.model.slo_configuration.admission_check import check_config_map, check_node_labels, check_nodes
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError

_THRESHOLD = "resource-threshold-config"
_ALL = (
    "colocation-config",
    "resource-threshold-config",
    "resource-qos-config",
    "system-config",
    "cpu-burst-config",
    "host-application-config",
    "cpu-normalization-config",
    "resource-amplification-config",
    "adaptive-slo-config",
)


def _group(name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "nodeSelector": {"matchLabels": labels}}


def _groups(*groups: dict[str, Any], key: str = _THRESHOLD) -> dict[str, str]:
    return {key: json.dumps({"nodeStrategies": groups, "nodeConfigs": groups})}


def _refusal(
    data: dict[str, str],
    old: dict[str, str] | None = None,
    nodes: tuple[ObjectMeta, ...] = (),
    *,
    names_required: bool = False,
) -> str:
    try:
        selections = check_config_map(data, old, config_map="ns/name", names_required=names_required)
        check_nodes(selections, nodes)
    except RefusedConfigurationError as error:
        return str(error)
    return ""


def _node_refusal(data: dict[str, str], **labels: str) -> str:
    try:
        check_node_labels(data, ObjectMeta(name="node-1", labels=labels))
    except RefusedConfigurationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("colocation-config", "colocation"),
        ("resource-threshold-config", "resourceThreshold"),
        ("resource-qos-config", "ResourceQOS"),
        ("system-config", "System"),
        ("cpu-burst-config", "CpuBurst"),
        ("host-application-config", "HostApplication"),
        ("cpu-normalization-config", "CPUNormalization"),
        ("resource-amplification-config", "ResourceAmplification"),
        ("adaptive-slo-config", "AdaptiveSLO"),
    ],
)
def test_what_cannot_be_parsed_is_refused(key: str, name: str) -> None:
    start = (
        f'___{{"reason":"ParseConfigFail","message":"Failed to parse {name} config in configmap ns/name, err: not JSON'
    )
    assert _refusal({key: "invalid config"}).startswith(start)


def test_a_key_that_did_not_change_is_not_checked() -> None:
    assert _refusal({_THRESHOLD: "invalid config"}, {_THRESHOLD: "invalid config"}) == ""


def test_an_empty_key_is_not_checked() -> None:
    assert _refusal(dict.fromkeys(_ALL, "")) == ""


@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {}}])
@pytest.mark.parametrize("key", _ALL)
def test_a_selector_must_request_something(key: str, selector: dict[str, Any] | None) -> None:
    assert _refusal(_groups({"name": "a", "nodeSelector": selector}, key=key)) == (
        '___{"reason":"ConfigParamInvalid","message":"nodeConfigs NodeSelector must not empty error! '
        f'configType: {key},nodeConfig name:a"}}___'
    )


def test_a_selector_must_be_readable() -> None:
    selector = {"matchExpressions": [{"key": "xxx", "operator": "out", "values": ["yyy"]}]}
    assert "ConfigParamInvalid" in _refusal(_groups({"name": "a", "nodeSelector": selector}))


def test_all_fields_out_of_their_bounds_are_reported_at_once() -> None:
    document = {
        "clusterStrategy": {"cpuSuppressThresholdPercent": -1},
        "nodeStrategies": [{**_group("a", xxx="yyy"), "cpuEvictTimeWindowSeconds": 0}],
    }
    assert _refusal({_THRESHOLD: json.dumps(document)}) == (
        '___{"reason":"ConfigParamInvalid","message":{'
        '"ResourceThresholdCfg.ClusterStrategy.CPUSuppressThresholdPercent":'
        '"CPUSuppressThresholdPercent must be 0 or greater",'
        '"ResourceThresholdCfg.NodeStrategies[0].ResourceThresholdStrategy.CPUEvictTimeWindowSeconds":'
        '"CPUEvictTimeWindowSeconds must be greater than 0"}}___'
    )


@pytest.mark.parametrize(
    ("key", "strategy", "path"),
    [
        (
            "cpu-normalization-config",
            {"ratioModel": {"model": {"baseRatio": 0.9}}},
            "CPUNormalizationCfg.CPUNormalizationStrategy.RatioModel[model].BaseRatio",
        ),
        (
            "resource-amplification-config",
            {"resourceAmplificationRatio": {"cpu": 0.9}},
            "ResourceAmplificationCfg.ResourceAmplificationStrategy.ResourceAmplificationRatio[cpu]",
        ),
        (
            "adaptive-slo-config",
            {"clusterStrategy": {"steps": 11}},
            "AdaptiveSLOCfg.ClusterStrategy.Steps",
        ),
        (
            "colocation-config",
            {"metricMemoryCollectPolicy": "all"},
            "ColocationCfg.ColocationStrategy.MetricMemoryCollectPolicy",
        ),
    ],
)
def test_what_would_be_refused_later_is_refused_at_once(key: str, strategy: dict[str, Any], path: str) -> None:
    assert path in _refusal({key: json.dumps(strategy)})


@pytest.mark.parametrize(
    ("strategy", "refused"),
    [
        ({"memoryEvictThresholdPercent": 60}, False),
        ({"memoryEvictLowerPercent": 60}, False),
        ({"memoryEvictLowerPercent": 70}, True),
        ({"memoryEvictThresholdPercent": 60, "memoryEvictLowerPercent": 60}, True),
        ({"cpuEvictThresholdPercent": 80}, False),
        ({"cpuEvictLowerPercent": 80}, True),
        ({"cpuEvictBESatisfactionUpperPercent": 80}, True),
        ({"cpuEvictBESatisfactionLowerPercent": 80}, True),
        ({"memoryAllocatableEvictThresholdPercent": 110}, True),
    ],
)
def test_pairs_are_compared_as_they_are_in_force(strategy: dict[str, Any], refused: bool) -> None:
    data = {_THRESHOLD: json.dumps({"clusterStrategy": strategy})}
    assert ("ConfigParamInvalid" in _refusal(data)) is refused


def test_a_group_is_compared_with_what_it_inherits() -> None:
    document = {
        "clusterStrategy": {"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 70},
        "nodeStrategies": [{**_group("a", xxx="yyy"), "cpuEvictThresholdPercent": 65}],
    }
    assert "NodeStrategies[0].ResourceThresholdStrategy.CPUEvictThresholdPercent" in _refusal(
        {_THRESHOLD: json.dumps(document)}
    )


@pytest.mark.parametrize(("end", "refused"), [(50, False), (0, True)])
def test_half_a_range_of_the_cache_is_compared_with_the_built_in_other_half(end: int, refused: bool) -> None:
    document = {"clusterStrategy": {"beClass": {"resctrlQOS": {"catRangeEndPercent": end}}}}
    assert ("CATRangeEndPercent" in _refusal({"resource-qos-config": json.dumps(document)})) is refused


def test_resource_qos_needs_no_system_key() -> None:
    assert _refusal({"resource-qos-config": '{"clusterStrategy":{"lsClass":{}}}'}) == ""


def test_resource_qos_needs_a_system_key_that_can_be_read() -> None:
    data = {"resource-qos-config": "{}", "system-config": "{"}
    assert "Failed to parse System config" in _refusal(data, {"system-config": "{"})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("", "b"), "nodeConfig Name need! configType:resource-threshold-config"),
        (("a", "a"), "nodeConfig Name confilict, configType:resource-threshold-config,nodeConfig Name:a! "),
    ],
)
def test_names_when_they_are_required(names: tuple[str, str], message: str) -> None:
    data = _groups(_group(names[0], a="1"), _group(names[1], a="2"))
    assert _refusal(data) == ""
    assert _refusal(data, names_required=True) == f'___{{"reason":"ConfigParamInvalid","message":"{message}"}}___'


def test_an_overlap_names_all_that_select_the_same_node() -> None:
    data = _groups(_group("a", x="1"), _group("b", y="1"), _group("c", x="1", y="1"), _group("d", x="2"))
    assert _refusal(data) == (
        '___{"reason":"NodeStrategiesOverlap","message":'
        '{"config":"resource-threshold-config","strategies":["a","b","c"]}}___'
    )


def test_a_node_that_two_groups_select_is_named() -> None:
    data = _groups(_group("a", x="1"), _group("b", y="1"))
    nodes = (ObjectMeta(name="one", labels={"x": "1"}), ObjectMeta(name="both", labels={"x": "1", "y": "1"}))
    assert _refusal(data, nodes=nodes) == (
        '___{"reason":"ExistNodeConfict","message":'
        '{"config":"resource-threshold-config","strategies":["a","b"],"exampleNodes":["both"]}}___'
    )


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 0), (2, 1)])
def test_nodes_are_requested_only_when_two_groups_could_select_one(count: int, expected: int) -> None:
    data = _groups(*[_group(str(number), pool=str(number)) for number in range(count)])
    assert len(check_config_map(data, None, config_map="ns/name", names_required=False)) == expected


def test_texts_are_escaped_as_go_escapes_them() -> None:
    assert '"strategies":["\\u003ca\\u003e","b\\u0026c"]' in _refusal(
        _groups(_group("<a>", x="1"), _group("b&c", x="1"))
    )


def test_labels_of_a_node_that_two_groups_select_are_refused() -> None:
    data = _groups(_group("a", x="1"), _group("b", y="1"), key="cpu-burst-config")
    assert _node_refusal(data, x="1", y="1") == (
        '___{"reason":"ExistNodeConfict","message":'
        '{"config":"cpu-burst-config","strategies":["a","b"],"exampleNodes":["node-1"]}}___'
    )


def test_labels_of_a_node_that_one_group_selects_are_not() -> None:
    assert _node_refusal(_groups(_group("a", x="1"), _group("b", y="1")), x="1") == ""


def test_broken_keys_are_passed_over_when_a_node_changes() -> None:
    data = {"colocation-config": "{", **_groups({"name": "a"}, key="system-config")}
    assert _node_refusal({**data, **_groups(_group("a", x="1"), _group("b", y="1"))}, x="1", y="1") != ""


@pytest.mark.parametrize(
    "key", ["host-application-config", "cpu-normalization-config", "resource-amplification-config"]
)
def test_keys_whose_overlaps_were_always_accepted_do_not_block_nodes(key: str) -> None:
    assert _node_refusal(_groups(_group("a", x="1"), _group("b", y="1"), key=key), x="1", y="1") == ""

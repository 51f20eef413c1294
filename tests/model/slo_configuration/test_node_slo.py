"""The NodeSLO of a node has of each key the strategy that is the node's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.quantity import Quantity
from koordinator.api.resource_qos import NetworkQoSConfig, ResourceQoS, ResourceQoSStrategy
from koordinator.model.slo_configuration.configuration import SLOConfiguration
from koordinator.model.slo_configuration.node_slo import (
    EXTENSION_PART,
    SYSTEM_PART,
    node_slo_spec,
    same_node_slo_spec,
)

_ADAPTIVE = "node.koordinator.sh/adaptive-slo"
_HALFWAY = {_ADAPTIVE: '{"level":2,"steps":4}'}
_BANDWIDTH = "node.koordinator.sh/network-bandwidth"


def _configuration(**documents: Any) -> SLOConfiguration:
    data = {f"{key.replace('_', '-')}-config": json.dumps(document) for key, document in documents.items()}
    configuration, problems = SLOConfiguration().updated(data)
    assert problems == ()
    return configuration


def _node(labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None) -> Node:
    return Node(metadata=ObjectMeta(name="node-1", labels=dict(labels or {}), annotations=dict(annotations or {})))


def test_a_node_without_configuration_gets_the_defaults() -> None:
    spec, problems = node_slo_spec(_configuration(), _node())
    assert problems == ()
    assert msgspec.to_builtins(spec, enc_hook=str) == {
        "resourceUsedThresholdWithBE": {
            "enable": False,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cpuset",
            "memoryEvictThresholdPercent": 70,
            "cpuEvictPolicy": "evictByRealLimit",
        },
        "resourceQOSStrategy": {},
        "cpuBurstStrategy": {
            "policy": "none",
            "cpuBurstPercent": 1000,
            "cfsQuotaBurstPercent": 300,
            "cfsQuotaBurstPeriodSeconds": -1,
            "sharePoolThresholdPercent": 50,
        },
        "systemStrategy": {},
        "extensions": {"Object": {}},
    }


def test_a_group_of_nodes_replaces_the_host_applications_of_the_cluster() -> None:
    entry = {"nodeSelector": {"matchLabels": {"a": "b"}}, "applications": [{"name": "other"}]}
    configuration = _configuration(host_application={"applications": [{"name": "nginx"}], "nodeConfigs": [entry]})
    applications = node_slo_spec(configuration, _node({"a": "b"}))[0].host_applications
    assert applications == [HostApplicationSpec(name="other")]


def test_a_group_of_nodes_can_have_no_host_applications() -> None:
    entry = {"nodeSelector": {"matchLabels": {"a": "b"}}}
    configuration = _configuration(host_application={"applications": [{"name": "nginx"}], "nodeConfigs": [entry]})
    assert node_slo_spec(configuration, _node({"a": "b"}))[0].host_applications == []


def test_the_bandwidth_of_the_node_goes_before_the_configured_one() -> None:
    configuration = _configuration(system={"clusterStrategy": {"totalNetworkBandwidth": "10G"}})
    spec, problems = node_slo_spec(configuration, _node(annotations={_BANDWIDTH: "20G"}))
    assert spec.system_strategy is not None
    assert (spec.system_strategy.total_network_bandwidth, problems) == (Quantity.parse("20G"), ())


@pytest.mark.parametrize("text", ["fast", ""])
def test_a_bandwidth_that_is_no_quantity_is_ignored_and_reported(text: str) -> None:
    configuration = _configuration(system={"clusterStrategy": {"totalNetworkBandwidth": "10G"}})
    spec, (problem,) = node_slo_spec(configuration, _node(annotations={_BANDWIDTH: text}))
    assert spec.system_strategy == configuration.system.strategies.cluster
    assert problem.part == SYSTEM_PART


class _Extension:
    """Gives nodes with the label ``part`` a part; fails for those where it is ``fail``."""

    key = "third-party"
    default: Any = None

    def merge(self, old: Any, data: Mapping[str, str]) -> Any:
        return old

    def for_node(self, node: Node, configuration: Any) -> Any | None:
        part = node.metadata.labels.get("part")
        if part == "fail":
            raise LookupError("no part")
        return {"set", "of", "texts", object()} if part == "no JSON" else part


_EXTENDED = SLOConfiguration.with_extensions((_Extension(),))
_CURRENT = NodeSLOSpec(extensions={"Object": {"third-party": "old", "foreign": 1}})


@pytest.mark.parametrize(
    ("labels", "current", "members"),
    [
        ({"part": "new"}, None, {"third-party": "new"}),
        ({"part": "new"}, _CURRENT, {"third-party": "new", "foreign": 1}),
        ({}, _CURRENT, {"foreign": 1}),
        ({"part": "fail"}, _CURRENT, {"third-party": "old", "foreign": 1}),
        ({"part": "no JSON"}, _CURRENT, {"third-party": "old", "foreign": 1}),
        ({}, None, {}),
    ],
)
def test_extensions(labels: dict[str, str], current: NodeSLOSpec | None, members: dict[str, Any]) -> None:
    assert node_slo_spec(_EXTENDED, _node(labels), current)[0].extensions == {"Object": members}


def test_an_extension_that_fails_is_reported() -> None:
    _, (problem,) = node_slo_spec(_EXTENDED, _node({"part": "fail"}))
    assert problem.part == EXTENSION_PART


def test_extensions_of_others_are_kept_where_there_are_none_of_ours() -> None:
    assert node_slo_spec(SLOConfiguration(), _node(), _CURRENT)[0].extensions == _CURRENT.extensions


def test_a_spec_is_the_same_as_itself_with_what_an_api_server_fills_in() -> None:
    stored = ResourceQoS(
        network_qos=NetworkQoSConfig(
            enable=True, ingress_request=0, ingress_limit=100, egress_request=0, egress_limit=100
        )
    )
    computed = ResourceQoS(network_qos=NetworkQoSConfig(enable=True))
    assert same_node_slo_spec(
        NodeSLOSpec(resource_qos_strategy=ResourceQoSStrategy(ls_class=computed), extensions={"Object": {}}),
        NodeSLOSpec(resource_qos_strategy=ResourceQoSStrategy(ls_class=stored)),
    )


def test_specs_that_say_different_things_are_not_the_same() -> None:
    one, _ = node_slo_spec(_configuration(), _node())
    other, _ = node_slo_spec(_configuration(cpu_burst={"clusterStrategy": {"policy": "auto"}}), _node())
    assert not same_node_slo_spec(one, other)


def _percents(spec: NodeSLOSpec) -> tuple[int | None, int | None]:
    """Of CPU suppress, and of the burst of quotas."""
    threshold, burst = spec.resource_used_threshold_with_be, spec.cpu_burst_strategy
    assert threshold is not None
    assert burst is not None
    return threshold.cpu_suppress_threshold_percent, burst.cfs_quota_burst_percent


def _adaptive(**fields: int | bool) -> SLOConfiguration:
    return _configuration(
        adaptive_slo={"clusterStrategy": {"cpuSuppressFloorPercent": 35, "cfsQuotaBurstFloorPercent": 100} | fields},
        resource_threshold={"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 75}},
    )


def test_an_adapted_node_has_lower_values_than_are_configured() -> None:
    assert _percents(node_slo_spec(_adaptive(enable=True), _node(annotations=_HALFWAY))[0]) == (55, 200)


@pytest.mark.parametrize("annotations", [{}, {_ADAPTIVE: "half way"}, {_ADAPTIVE: '{"level":0,"steps":4}'}])
def test_a_node_that_is_not_adapted_has_what_is_configured(annotations: dict[str, str]) -> None:
    assert _percents(node_slo_spec(_adaptive(enable=True), _node(annotations=annotations))[0]) == (75, 300)


def test_where_adaptation_is_off_the_annotation_says_nothing() -> None:
    assert _percents(node_slo_spec(_adaptive(), _node(annotations=_HALFWAY))[0]) == (75, 300)


def test_a_floor_above_what_is_configured_changes_nothing() -> None:
    adaptive = _adaptive(enable=True, cpuSuppressFloorPercent=80)
    assert _percents(node_slo_spec(adaptive, _node(annotations=_HALFWAY))[0]) == (75, 200)


def test_what_was_in_force_before_a_restart_is_not_lowered_again() -> None:
    node = _node(annotations=_HALFWAY)
    before = node_slo_spec(_adaptive(enable=True), node)[0]
    data = {"adaptive-slo-config": '{"clusterStrategy": {"enable": true}}', "resource-threshold-config": "{"}
    spec = node_slo_spec(SLOConfiguration().updated(data)[0], node, before)[0]
    assert _percents(spec)[0] == _percents(before)[0]


@pytest.mark.parametrize(("annotations", "percents"), [(_HALFWAY, (50, 225)), ({}, (65, 300))])
def test_a_restart_while_the_key_cannot_be_read_leaves_adapted_nodes_adapted(
    annotations: dict[str, str], percents: tuple[int, int]
) -> None:
    configuration, _ = SLOConfiguration().updated({"adaptive-slo-config": "{"})
    assert _percents(node_slo_spec(configuration, _node(annotations=annotations))[0]) == percents

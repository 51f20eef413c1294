"""Shares of the network are checked by kind: percentages against the whole, amounts against the bandwidth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordinator.model.slo_configuration import configuration_keys as keys
from koordinator.model.slo_configuration.network_bandwidth_check import check_network_bandwidth
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError
from koordinator.model.slo_configuration.written_configuration import read_configuration

_SELECTOR = {"matchLabels": {"xxx": "yyy"}}


def _classes(**requests: Any) -> dict[str, Any]:
    return {f"{name}Class": {"networkQOS": {"ingressRequest": request}} for name, request in requests.items()}


def _refusal(qos: dict[str, Any], system: dict[str, Any] | None = None) -> str:
    try:
        check_network_bandwidth(
            read_configuration(json.dumps(qos), keys.RESOURCE_QOS),
            read_configuration(json.dumps(system or {}), keys.SYSTEM),
        )
    except RefusedConfigurationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", [0, 50, 100, "50M", "50m"])
def test_a_percentage_or_a_quantity_is_a_share(value: int | str) -> None:
    assert _refusal({"clusterStrategy": _classes(ls=value)}) == ""


@pytest.mark.parametrize("value", [-1, 101])
def test_a_number_is_a_percentage(value: int) -> None:
    assert _refusal({"clusterStrategy": _classes(lsr=value)}) == (
        f"ResourceQOSCfg.ClusterStrategy.LSRClass.IngressRequest: Invalid value: {value}: "
        "must be percentage value just in 0-100'"
    )


@pytest.mark.parametrize("value", ["50a", ""])
def test_a_text_is_a_quantity(value: str) -> None:
    qos = {"nodeStrategies": [{"nodeSelector": _SELECTOR, **_classes(be=value)}]}
    assert _refusal(qos) == (
        f'ResourceQOSCfg.nodeStrategy.0.BEClass.IngressRequest: Invalid value: "{value}": '
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


def test_an_amount_is_not_negative() -> None:
    assert "must be 0 or greater" in _refusal({"clusterStrategy": _classes(ls="-5M")})


def test_percentages_sum_up_to_the_whole_at_most() -> None:
    assert _refusal({"clusterStrategy": _classes(lsr=50, ls=50)}) == ""
    assert _refusal({"clusterStrategy": _classes(lsr=50, be=51)}) == (
        "ClusterStrategy total net bandwidth percentage already over 100"
    )


def test_percentages_of_a_group_are_summed_with_those_that_it_inherits() -> None:
    qos = {"clusterStrategy": _classes(lsr=50), "nodeStrategies": [{"nodeSelector": _SELECTOR, **_classes(be=60)}]}
    assert _refusal(qos) == "cfg.NodeStrategies[0] total net bandwidth percentage already over 100"


def test_amounts_are_not_taken_for_percentages() -> None:
    assert _refusal({"clusterStrategy": _classes(lsr="500M", be="600M")}) == ""


def test_percentages_are_not_taken_for_amounts() -> None:
    system = {"clusterStrategy": {"totalNetworkBandwidth": "10"}}
    assert _refusal({"clusterStrategy": _classes(lsr=50)}, system) == ""


def test_amounts_sum_up_to_the_bandwidth_at_most() -> None:
    qos = {"clusterStrategy": _classes(lsr="500M", ls="600M")}
    assert _refusal(qos, {"clusterStrategy": {"totalNetworkBandwidth": "1100M"}}) == ""
    assert _refusal(qos, {"clusterStrategy": {"totalNetworkBandwidth": "1000M"}}) == (
        "total net bandwidth over total network bandwidth in clusterStrategy"
    )


@pytest.mark.parametrize(
    "system",
    [
        {"nodeStrategies": [{"nodeSelector": _SELECTOR, "totalNetworkBandwidth": "1000M"}]},
        {"clusterStrategy": {"totalNetworkBandwidth": "1000M"}},
        {"clusterStrategy": {"totalNetworkBandwidth": "1000M"}, "nodeStrategies": [{"nodeSelector": _SELECTOR}]},
        {
            "clusterStrategy": {"totalNetworkBandwidth": "1000M"},
            "nodeStrategies": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "totalNetworkBandwidth": "9G"}],
        },
    ],
)
def test_amounts_of_a_group_are_compared_with_the_bandwidth_of_the_same_nodes(system: dict[str, Any]) -> None:
    qos = {"nodeStrategies": [{"nodeSelector": _SELECTOR, **_classes(lsr="500M", ls="600M")}]}
    assert _refusal(qos, system) == (
        "total net bandwidth quantity already over total network bandwidth in cfg.NodeStrategies[0]"
    )


def test_requests_of_a_strategy_are_of_one_kind() -> None:
    assert _refusal({"clusterStrategy": _classes(lsr="500M", ls=60)}) == (
        "only one type can be used for percentages or quantity in clusterStrategy"
    )


def test_requests_of_a_group_are_of_one_kind_with_those_that_it_inherits() -> None:
    qos = {"clusterStrategy": _classes(lsr=50), "nodeStrategies": [{"nodeSelector": _SELECTOR, **_classes(be="6M")}]}
    assert _refusal(qos) == "only one type can be used for percentages or quantity in nodeStrategy[0]"

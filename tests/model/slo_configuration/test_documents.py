"""What is written is merged by presence: left out, null and zero are three things."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import DecodeError
from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.cpu_normalization import CPUModelRatios, CPUNormalizationStrategy
from koordinator.api.meta import LabelSelector
from koordinator.api.quantity import Quantity
from koordinator.api.resource_qos import BlkioQoSConfig, BlockConfig, CPUQoSConfig, ResourceQoS, ResourceQoSStrategy
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.system_strategy import SystemStrategy
from koordinator.model.slo_configuration.documents import given_fields, overridden, read_given, read_object

_MEMBERS = {
    "enable": st.none() | st.booleans(),
    "cpuSuppressThresholdPercent": st.none() | st.integers(0, 100),
    "cpuSuppressPolicy": st.none() | st.sampled_from(["", "cpuset", "cfsQuota"]),
    "memoryEvictThresholdPercent": st.none() | st.integers(0, 100),
    "unknown": st.integers(),
}
_DOCUMENTS = st.fixed_dictionaries({}, optional=_MEMBERS)


@pytest.mark.parametrize("text", ["invalid_content", "", "[]", "1", '"x"', "{"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        read_object(text)


def test_null_is_an_empty_object() -> None:
    assert read_object("null") == {}


def test_names_match_whatever_their_case() -> None:
    document = {"ENABLE": True, "cpusuppressthresholdpercent": 5, "nothingOfTheSort": 1}
    assert given_fields(document, ResourceThresholdStrategy) == {"enable": True, "cpuSuppressThresholdPercent": 5}


def test_nulls_and_texts_that_cannot_be_distinguished_from_unset_are_not_given() -> None:
    document = {"enable": None, "cpuSuppressPolicy": "", "cpuSuppressMinPercent": 0}
    assert given_fields(document, ResourceThresholdStrategy) == {"cpuSuppressMinPercent": 0}


def test_an_empty_text_that_can_be_distinguished_from_unset_is_given() -> None:
    assert given_fields({"metricMemoryCollectPolicy": ""}, ColocationStrategy) == {"metricMemoryCollectPolicy": ""}


def test_an_empty_list_is_not_given() -> None:
    document: dict[str, object] = {"metricAggregatePolicy": {"durations": []}}
    assert given_fields(document, ColocationStrategy) == {"metricAggregatePolicy": {}}


def test_a_wrong_type_is_reported_with_its_place() -> None:
    with pytest.raises(DecodeError, match=r"^nodeStrategies\[1\]: .*cpuSuppressThresholdPercent"):
        read_given({"cpuSuppressThresholdPercent": "60"}, ResourceThresholdStrategy, "nodeStrategies[1]")


def test_a_number_that_no_api_server_stores_is_refused() -> None:
    with pytest.raises(DecodeError, match="out of range"):
        read_given({"cpuEvictTimeWindowSeconds": 2**63}, ResourceThresholdStrategy)


def test_a_null_in_a_map_or_list_stands_for_zero() -> None:
    selector = {"matchLabels": {"a": None}, "matchExpressions": [None]}
    assert given_fields(selector, LabelSelector) == {"matchLabels": {"a": ""}, "matchExpressions": [{}]}


def test_structs_merge_field_by_field() -> None:
    base = ResourceQoSStrategy(ls_class=ResourceQoS(cpu_qos=CPUQoSConfig(group_identity=2, sched_idle=0)))
    override = read_given({"lsClass": {"cpuQOS": {"groupIdentity": 0}}, "beClass": {}}, ResourceQoSStrategy)
    expected = ResourceQoSStrategy(
        ls_class=ResourceQoS(cpu_qos=CPUQoSConfig(group_identity=0, sched_idle=0)), be_class=ResourceQoS()
    )
    assert overridden(base, override) == expected


def test_maps_merge_by_key_and_their_values_are_replaced_whole() -> None:
    base = CPUNormalizationStrategy(
        ratio_model={"a": CPUModelRatios(base_ratio=1.0, turbo_enabled_ratio=2.0), "b": CPUModelRatios(base_ratio=3.0)}
    )
    override = read_given({"ratioModel": {"a": {"baseRatio": 1.5}}}, CPUNormalizationStrategy)
    assert overridden(base, override).ratio_model == {
        "a": CPUModelRatios(base_ratio=1.5),
        "b": CPUModelRatios(base_ratio=3.0),
    }


def test_lists_are_replaced_whole() -> None:
    base = BlkioQoSConfig(blocks=[BlockConfig(name="vda", type="device"), BlockConfig(name="vdb")])
    assert overridden(base, read_given({"blocks": [{"name": "vg"}]}, BlkioQoSConfig)).blocks == [BlockConfig(name="vg")]


def test_a_quantity_that_is_left_out_is_inherited() -> None:
    base = SystemStrategy(total_network_bandwidth=Quantity.parse("10G"))
    override = read_given({"minFreeKbytesFactor": 100}, SystemStrategy)
    assert overridden(base, override).total_network_bandwidth == Quantity.parse("10G")


def test_a_quantity_of_zero_overrides() -> None:
    base = SystemStrategy(total_network_bandwidth=Quantity.parse("10G"))
    assert (
        overridden(base, read_given({"totalNetworkBandwidth": "0"}, SystemStrategy)).total_network_bandwidth.nanos == 0
    )


@given(_DOCUMENTS, _DOCUMENTS)
def test_merging_twice_is_merging_once(base: dict[str, object], override: dict[str, object]) -> None:
    strategy = read_given(base, ResourceThresholdStrategy).values
    given_override = read_given(override, ResourceThresholdStrategy)
    once = overridden(strategy, given_override)
    assert overridden(once, given_override) == once


@given(_DOCUMENTS)
def test_an_empty_override_changes_nothing(base: dict[str, object]) -> None:
    strategy = read_given(base, ResourceThresholdStrategy).values
    assert overridden(strategy, read_given({}, ResourceThresholdStrategy)) is strategy


@given(_DOCUMENTS, _DOCUMENTS)
def test_what_is_given_is_in_force_and_all_else_is_inherited(base: dict[str, object], over: dict[str, object]) -> None:
    strategy = read_given(base, ResourceThresholdStrategy).values
    given_override = read_given(over, ResourceThresholdStrategy)
    merged = overridden(strategy, given_override)
    for name, wire_name in (("enable", "enable"), ("cpu_suppress_policy", "cpuSuppressPolicy")):
        source = given_override.values if wire_name in given_override.fields else strategy
        assert getattr(merged, name) == getattr(source, name)

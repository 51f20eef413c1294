"""What a NodeSLO leaves out is filled in; what it says stays, but where a feature is switched off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordinator.api.codec import convert, to_document
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.model.slo_configuration.complete_node_slo import complete_node_slo_spec
from koordinator.model.slo_configuration.quality_of_service_defaults import (
    NEUTRAL_CPU_QOS,
    NEUTRAL_MEMORY_QOS,
    NEUTRAL_RESCTRL_QOS,
    RECOMMENDED_RESOURCE_QOS,
)


def completed(**spec: Any) -> dict[str, Any]:
    document = to_document(complete_node_slo_spec(convert(spec, NodeSLOSpec)))
    assert isinstance(document, dict)
    return document


def test_an_empty_spec_has_the_defaults_of_every_section() -> None:
    document = completed()
    assert document["resourceUsedThresholdWithBE"] == {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    }
    assert document["cpuBurstStrategy"]["cfsQuotaBurstPercent"] == 300
    assert document["resourceQOSStrategy"]["policies"] == {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"}


def test_false_and_zero_are_written_and_go_before_the_defaults() -> None:
    threshold = {"enable": True, "memoryEvictThresholdPercent": 0}
    document = completed(resourceUsedThresholdWithBE=threshold)["resourceUsedThresholdWithBE"]
    assert document == {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 0,
        "cpuEvictPolicy": "evictByRealLimit",
    }


def test_nested_sections_merge_field_by_field() -> None:
    be_class = {"cpuQOS": {"enable": True, "groupIdentity": 0}}
    strategy = complete_node_slo_spec(
        convert({"resourceQOSStrategy": {"beClass": be_class}}, NodeSLOSpec)
    ).resource_qos_strategy
    assert strategy is not None
    assert strategy.be_class is not None
    assert to_document(strategy.be_class.cpu_qos) == {
        "enable": True,
        "groupIdentity": 0,
        "schedIdle": 0,
        "coreExpeller": False,
    }
    assert strategy.system_class == RECOMMENDED_RESOURCE_QOS.system_class


@pytest.mark.parametrize("name", ["lsrClass", "lsClass", "beClass"])
@pytest.mark.parametrize(
    ("section", "written", "neutral"),
    [
        ("cpuQOS", {"groupIdentity": 2}, NEUTRAL_CPU_QOS),
        ("memoryQOS", {"wmarkRatio": 80, "pageCacheLimitPercent": 10}, NEUTRAL_MEMORY_QOS),
        ("resctrlQOS", {"catRangeEndPercent": 30}, NEUTRAL_RESCTRL_QOS),
    ],
)
def test_a_feature_that_is_off_has_the_values_that_undo_it(
    name: str, section: str, written: dict[str, Any], neutral: msgspec.Struct
) -> None:
    document = completed(resourceQOSStrategy={name: {section: {"enable": False, **written}}})
    assert document["resourceQOSStrategy"][name][section] == {"enable": False, **to_document(neutral)}


def test_the_system_class_keeps_its_values_while_it_is_off() -> None:
    document = completed(resourceQOSStrategy={"systemClass": {"memoryQOS": {"enable": False, "wmarkRatio": 80}}})
    assert document["resourceQOSStrategy"]["systemClass"]["memoryQOS"]["wmarkRatio"] == 80


def test_lists_are_taken_whole_and_the_rest_is_as_it_was() -> None:
    blocks = [{"name": "sda", "type": "device", "ioCfg": {"readIOPS": 100}}]
    applications = [{"name": "nginx"}]
    document = completed(
        resourceQOSStrategy={"cgroupRoot": {"blkioQOS": {"blocks": blocks}}},
        hostApplications=applications,
        extensions={"Object": {"a": 1}},
    )
    assert document["resourceQOSStrategy"]["cgroupRoot"]["blkioQOS"] == {"enable": False, "blocks": blocks}
    assert document["hostApplications"] == applications
    assert document["extensions"] == {"Object": {"a": 1}}


def test_completing_twice_changes_nothing() -> None:
    once = complete_node_slo_spec(NodeSLOSpec())
    assert complete_node_slo_spec(once) == once

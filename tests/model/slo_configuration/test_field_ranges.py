"""Paths and texts are those of the original's validator."""

from __future__ import annotations

import pytest

from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.resource_qos import CPUQoSConfig, ResourceQoS, ResourceQoSStrategy
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.model.slo_configuration.field_ranges import go_name, range_errors


@pytest.mark.parametrize(
    ("wire_name", "expected"),
    [
        ("cpuSuppressThresholdPercent", "CPUSuppressThresholdPercent"),
        ("cfsQuotaBurstPercent", "CFSQuotaBurstPercent"),
        ("catRangeStartPercent", "CATRangeStartPercent"),
        ("mbaPercent", "MBAPercent"),
        ("lsrClass", "LSRClass"),
        ("lsClass", "LSClass"),
        ("beClass", "BEClass"),
        ("systemClass", "SystemClass"),
        ("blkioQOS", "BlkIOQOS"),
        ("ioCfg", "IOCfg"),
        ("readIOPS", "ReadIOPS"),
        ("oomKillGroup", "OomKillGroup"),
        ("midCPUThresholdPercent", "MidCPUThresholdPercent"),
        ("memcgReapBackGround", "MemcgReapBackGround"),
        ("schedIdle", "SchedIdle"),
    ],
)
def test_names_of_go_fields(wire_name: str, expected: str) -> None:
    assert go_name(wire_name) == expected


def test_a_path_passes_through_embedded_structs() -> None:
    strategy = ResourceQoSStrategy(ls_class=ResourceQoS(cpu_qos=CPUQoSConfig(group_identity=3)))
    assert range_errors(strategy, strategy, "Cfg.ClusterStrategy") == {
        "Cfg.ClusterStrategy.LSClass.CPUQOS.CPUQOS.GroupIdentity": "GroupIdentity must be 2 or less"
    }


def test_large_bounds_are_grouped_by_thousands() -> None:
    strategy = CPUBurstStrategy(cpu_burst_percent=10_001)
    assert list(range_errors(strategy, strategy, "Cfg").values()) == ["CPUBurstPercent must be 10,000 or less"]


def test_some_bounds_are_reported_as_above_zero() -> None:
    strategy = ResourceThresholdStrategy(cpu_evict_time_window_seconds=0)
    assert list(range_errors(strategy, strategy, "Cfg").values()) == [
        "CPUEvictTimeWindowSeconds must be greater than 0"
    ]


def test_a_field_is_compared_with_what_is_in_force_for_the_other() -> None:
    written = ResourceThresholdStrategy(memory_evict_lower_percent=70)
    in_force = ResourceThresholdStrategy(memory_evict_lower_percent=70, memory_evict_threshold_percent=70)
    assert range_errors(written, in_force, "Cfg") == {
        "Cfg.MemoryEvictLowerPercent": "MemoryEvictLowerPercent must be less than MemoryEvictThresholdPercent"
    }


@pytest.mark.parametrize(
    "written",
    [
        ResourceThresholdStrategy(memory_evict_threshold_percent=60),
        ResourceThresholdStrategy(cpu_evict_threshold_percent=60),
    ],
)
def test_a_threshold_alone_is_enough_where_the_lower_one_follows_from_it(written: ResourceThresholdStrategy) -> None:
    assert range_errors(written, written, "Cfg") == {}


def test_a_field_that_is_only_inherited_is_not_told_again() -> None:
    in_force = ResourceThresholdStrategy(cpu_suppress_threshold_percent=101)
    assert range_errors(ResourceThresholdStrategy(), in_force, "Cfg") == {}

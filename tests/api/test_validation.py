from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.kinds import Kind
from koordinator.api.resource_qos import MemoryQoS, NetworkQoSConfig, ResctrlQoS
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.system_strategy import SystemStrategy
from koordinator.api.validation import validate, validate_admission
from tests.api.sample_objects import CUSTOM_KINDS, load_sample

_INVALID: list[tuple[str, dict[str, Any], str]] = [
    (
        "nodeslo",
        {"spec": {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}}},
        "spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent: Invalid value: 101: must be from 0 to 100",
    ),
    (
        "nodeslo",
        {"spec": {"resourceQOSStrategy": {"cgroupRoot": {"blkioQOS": {"blocks": [{"ioCfg": {"modelReadBPS": 0}}]}}}}},
        "spec.resourceQOSStrategy.cgroupRoot.blkioQOS.blocks[0].ioCfg.modelReadBPS: Invalid value: 0: "
        "must be 1 or greater",
    ),
    (
        "nodemetric",
        {"spec": {"metricCollectPolicy": {"nodeMemoryCollectPolicy": "all"}}},
        'spec.metricCollectPolicy.nodeMemoryCollectPolicy: Unsupported value: "all": supported values: '
        '"usageWithHotPageCache", "usageWithoutPageCache", "usageWithPageCache"',
    ),
    (
        "colocation_profile",
        {"spec": {"qosClass": "be"}},
        'spec.qosClass: Unsupported value: "be": supported values: "LSE", "LSR", "LS", "BE", "SYSTEM"',
    ),
    (
        "colocation_profile",
        {"spec": {"probability": "half"}},
        'spec.probability: Invalid value: "half": must be a number or a percentage such as 30%',
    ),
    (
        "colocation_profile",
        {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        "spec.selector.matchExpressions[0].values: Required value: "
        "must be specified when `operator` is 'In' or 'NotIn'",
    ),
    ("reservation", {"spec": {"template": {}}}, "spec.owners: Required value: must have at least 1 item"),
    ("reservation", {"spec": {"owners": [{"labelSelector": {}}]}}, "spec.template: Required value"),
    (
        "reservation",
        {"spec": {"template": {}, "owners": [{}]}},
        "spec.owners[0]: Invalid value: {}: must have at least 1 field set",
    ),
    (
        "reservation",
        {"spec": {"template": {}, "owners": [{"labelSelector": {}}], "allocatePolicy": "Loose"}},
        'spec.allocatePolicy: Unsupported value: "Loose": supported values: "Aligned", "Restricted"',
    ),
    ("pod_migration_job", {"spec": {}}, "spec.podRef: Required value"),
    (
        "pod_migration_job",
        {"spec": {"podRef": {"name": "a"}, "mode": "Fast"}},
        'spec.mode: Unsupported value: "Fast": supported values: "ReservationFirst", "EvictDirectly"',
    ),
    ("elastic_quota_profile", {"spec": {"nodeSelector": {}}}, "spec.quotaName: Required value"),
    (
        "elastic_quota_profile",
        {"spec": {"quotaName": "a", "nodeSelector": {}, "resourceRatio": "most"}},
        'spec.resourceRatio: Invalid value: "most": must be a number of 0 or greater such as 0.9',
    ),
    (
        "recommendation",
        {"spec": {"target": {"type": "workload"}}},
        "spec.target.workload: Required value: must be specified when `type` is 'workload'",
    ),
    ("node_resource_topology", {"zones": [{"name": "node-0"}]}, "zones[0].type: Required value"),
]


def _convert(kind: Kind[Any], document: dict[str, Any]) -> Any:
    return convert(document, kind.type)


@pytest.mark.parametrize(("name", "document", "message"), _INVALID)
def test_an_error_names_the_field_the_value_and_what_is_allowed(
    name: str, document: dict[str, Any], message: str
) -> None:
    assert [str(error) for error in validate(_convert(CUSTOM_KINDS[name], document))] == [message]


def test_every_error_is_reported() -> None:
    strategy = ResourceThresholdStrategy(cpu_suppress_threshold_percent=-1, memory_evict_lower_percent=101)
    assert [error.path for error in validate(strategy, "spec")] == [
        "spec.cpuSuppressThresholdPercent",
        "spec.memoryEvictLowerPercent",
    ]


@pytest.mark.parametrize(
    ("struct", "message"),
    [
        (
            CPUBurstStrategy(cfs_quota_burst_percent=99),
            "cfsQuotaBurstPercent: Invalid value: 99: must be 100 or greater",
        ),
        (CPUBurstStrategy(cpu_burst_percent=0), "cpuBurstPercent: Invalid value: 0: must be from 1 to 10000"),
        (SystemStrategy(watermark_scale_factor=401), "watermarkScaleFactor: Invalid value: 401: must be from 1 to 400"),
        (MemoryQoS(low_limit_percent=101), "lowLimitPercent: Invalid value: 101: must be from 0 to 100"),
        (
            ResourceThresholdStrategy(cpu_evict_be_usage_threshold_percent=101),
            "cpuEvictBEUsageThresholdPercent: Invalid value: 101: must be from 0 to 100",
        ),
        (
            ResourceThresholdStrategy(memory_evict_threshold_percent=70),
            "memoryEvictThresholdPercent: Invalid value: 70: "
            "must be greater than memoryEvictLowerPercent, which is unset",
        ),
    ],
)
def test_admission_is_stricter_than_the_schema(struct: Any, message: str) -> None:
    assert ([str(error) for error in validate_admission(struct)], validate(struct)) == ([message], [])


def test_the_two_fields_of_a_pair_must_be_in_order() -> None:
    errors = validate_admission(ResctrlQoS(cat_range_start_percent=50, cat_range_end_percent=50))
    assert [str(error) for error in errors] == [
        "catRangeStartPercent: Invalid value: 50: must be less than catRangeEndPercent, which is 50",
        "catRangeEndPercent: Invalid value: 50: must be greater than catRangeStartPercent, which is 50",
    ]


@pytest.mark.parametrize("bandwidth", [-1, 101, "fast", "-5M"])
def test_a_bandwidth_is_a_percentage_or_a_quantity(bandwidth: int | str) -> None:
    errors = validate(NetworkQoSConfig(ingress_limit=bandwidth))
    assert [error.path for error in errors] == ["ingressLimit"]


def test_the_strategies_of_the_sample_pass_admission() -> None:
    assert validate_admission(_convert(CUSTOM_KINDS["nodeslo"], load_sample("nodeslo"))) == []

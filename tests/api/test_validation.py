from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import Kind
from koordinator.api.resource_qos import NetworkQoSConfig
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.validation import validate
from tests.api.sample_objects import CUSTOM_KINDS

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


@pytest.mark.parametrize("bandwidth", [-1, 101, "fast", "-5M"])
def test_a_bandwidth_is_a_percentage_or_a_quantity(bandwidth: int | str) -> None:
    errors = validate(NetworkQoSConfig(ingress_limit=bandwidth))
    assert [error.path for error in errors] == ["ingressLimit"]

"""The built-in profiles, value by value."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.resource_qos import ResourceQoS
from koordinator.model.slo_configuration.quality_of_service_defaults import (
    RECOMMENDED_RESOURCE_QOS,
)

_RECOMMENDED = RECOMMENDED_RESOURCE_QOS


@pytest.mark.parametrize(
    ("qos", "identity", "expeller", "cache_end", "ratio", "scale", "adjustment"),
    [
        (_RECOMMENDED.lsr_class, 2, True, 100, 95, 20, -25),
        (_RECOMMENDED.ls_class, 2, True, 100, 95, 20, -25),
        (_RECOMMENDED.be_class, -1, False, 30, 95, 20, 50),
        (_RECOMMENDED.system_class, 0, False, 100, 0, 50, 0),
    ],
)
def test_of_each_class(
    qos: ResourceQoS, identity: int, expeller: bool, cache_end: int, ratio: int, scale: int, adjustment: int
) -> None:
    assert msgspec.to_builtins(qos) == {
        "cpuQOS": {"enable": False, "groupIdentity": identity, "schedIdle": 0, "coreExpeller": expeller},
        "memoryQOS": {
            "enable": False,
            "minLimitPercent": 0,
            "lowLimitPercent": 0,
            "throttlingPercent": 0,
            "wmarkRatio": ratio,
            "wmarkScalePermill": scale,
            "wmarkMinAdj": adjustment,
            "priorityEnable": 0,
            "priority": 0,
            "oomKillGroup": 0,
        },
        "blkioQOS": {"enable": False},
        "resctrlQOS": {
            "enable": False,
            "catRangeStartPercent": 0,
            "catRangeEndPercent": cache_end,
            "mbaPercent": 100,
        },
        "networkQOS": {
            "enable": False,
            "ingressRequest": 0,
            "ingressLimit": 0,
            "egressRequest": 0,
            "egressLimit": 0,
        },
    }


def test_the_root_has_only_block_devices() -> None:
    assert msgspec.to_builtins(_RECOMMENDED.cgroup_root) == {"blkioQOS": {"enable": False}}


def test_policies() -> None:
    assert msgspec.to_builtins(_RECOMMENDED.policies) == {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"}

"""The default settings of kernel isolation for the QoS classes of pods.

Two profiles (pkg/util/sloconfig/nodeslo_config.go). The recommended one holds the values in effect once a feature is
enabled, and those of the pod annotation policy ``auto``; by itself it enables nothing. The neutral one undoes what a
feature does. Percentages, and ten-thousandths (``permill``) of a container's memory limit for watermarks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.qos import QoSClass
from koordinator.api.resource_qos import (
    CPU_POLICY_GROUP_IDENTITY,
    NETWORK_POLICY_TC,
    BlkioQoSConfig,
    CPUQoS,
    CPUQoSConfig,
    MemoryQoS,
    MemoryQoSConfig,
    NetworkQoS,
    NetworkQoSConfig,
    ResctrlQoS,
    ResctrlQoSConfig,
    ResourceQoS,
    ResourceQoSPolicies,
    ResourceQoSStrategy,
)
from koordinator.api.struct_fields import struct_fields


def _memory(ratio: int, scale: int, adjustment: int) -> MemoryQoS:
    return MemoryQoS(
        min_limit_percent=0,
        low_limit_percent=0,
        throttling_percent=0,
        wmark_ratio=ratio,
        wmark_scale_permill=scale,
        wmark_min_adj=adjustment,
        priority_enable=0,
        priority=0,
        oom_kill_group=0,
    )


def _resctrl(cache_end: int) -> ResctrlQoS:
    return ResctrlQoS(cat_range_start_percent=0, cat_range_end_percent=cache_end, mba_percent=100)


NEUTRAL_CPU_QOS: Final = CPUQoS(group_identity=0, sched_idle=0, core_expeller=False)
NEUTRAL_MEMORY_QOS: Final = _memory(ratio=0, scale=50, adjustment=0)
NEUTRAL_RESCTRL_QOS: Final = _resctrl(100)
NEUTRAL_NETWORK_QOS: Final = NetworkQoS(ingress_request=0, ingress_limit=0, egress_request=0, egress_limit=0)

RECOMMENDED_CPU_QOS: Final[Mapping[QoSClass, CPUQoS]] = MappingProxyType(
    {
        QoSClass.LSR: CPUQoS(group_identity=2, sched_idle=0, core_expeller=True),
        QoSClass.LS: CPUQoS(group_identity=2, sched_idle=0, core_expeller=True),
        QoSClass.BE: CPUQoS(group_identity=-1, sched_idle=0, core_expeller=False),
        QoSClass.SYSTEM: CPUQoS(group_identity=0, sched_idle=0, core_expeller=False),
    }
)
RECOMMENDED_MEMORY_QOS: Final[Mapping[QoSClass, MemoryQoS]] = MappingProxyType(
    {
        QoSClass.LSR: _memory(ratio=95, scale=20, adjustment=-25),
        QoSClass.LS: _memory(ratio=95, scale=20, adjustment=-25),
        QoSClass.BE: _memory(ratio=95, scale=20, adjustment=50),
        QoSClass.SYSTEM: _memory(ratio=0, scale=50, adjustment=0),
    }
)
RECOMMENDED_RESCTRL_QOS: Final[Mapping[QoSClass, ResctrlQoS]] = MappingProxyType(
    {
        QoSClass.LSR: _resctrl(100),
        QoSClass.LS: _resctrl(100),
        QoSClass.BE: _resctrl(30),
        QoSClass.SYSTEM: _resctrl(100),
    }
)


def _class(cpu: CPUQoS, memory: MemoryQoS, resctrl: ResctrlQoS) -> ResourceQoS:
    return ResourceQoS(
        cpu_qos=CPUQoSConfig(enable=False, **_values(cpu)),
        memory_qos=MemoryQoSConfig(enable=False, **_values(memory)),
        blkio_qos=BlkioQoSConfig(enable=False),
        resctrl_qos=ResctrlQoSConfig(enable=False, **_values(resctrl)),
        network_qos=NetworkQoSConfig(enable=False, **_values(NEUTRAL_NETWORK_QOS)),
    )


def _values(qos: CPUQoS | MemoryQoS | ResctrlQoS | NetworkQoS) -> dict[str, Any]:
    return {field.name: getattr(qos, field.name) for field in struct_fields(type(qos))}


def _recommended(qos: QoSClass) -> ResourceQoS:
    return _class(RECOMMENDED_CPU_QOS[qos], RECOMMENDED_MEMORY_QOS[qos], RECOMMENDED_RESCTRL_QOS[qos])


_POLICIES: Final = ResourceQoSPolicies(cpu_policy=CPU_POLICY_GROUP_IDENTITY, network_policy=NETWORK_POLICY_TC)
_CGROUP_ROOT: Final = ResourceQoS(blkio_qos=BlkioQoSConfig(enable=False))

RECOMMENDED_RESOURCE_QOS: Final = ResourceQoSStrategy(
    policies=_POLICIES,
    lsr_class=_recommended(QoSClass.LSR),
    ls_class=_recommended(QoSClass.LS),
    be_class=_recommended(QoSClass.BE),
    system_class=_recommended(QoSClass.SYSTEM),
    cgroup_root=_CGROUP_ROOT,
)
"""The values onto which koordlet merges a NodeSLO's resource QoS."""

"""Part of NodeSLO: what each class of pods gets of the kernel's means of isolation."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from koordinator.api.constraints import (
    Admission,
    IntOrString,
    NotNegative,
    Percent,
    Positive,
    Schema,
    Switch,
)
from koordinator.api.meta import WireStruct

CPU_POLICY_GROUP_IDENTITY: Final = "groupIdentity"
CPU_POLICY_CORE_SCHED: Final = "coreSched"
NETWORK_POLICY_TC: Final = "tc"
NETWORK_POLICY_TERWAY: Final = "terway-qos"
BLOCK_DEVICE: Final = "device"
BLOCK_VOLUME_GROUP: Final = "volumegroup"
BLOCK_POD_VOLUME: Final = "podvolume"

_PercentNotCapped = Annotated[int | None, Schema(minimum=0), Admission(minimum=0, maximum=100)]
"""A percentage of which the CRD checks only the lower bound."""
_NoBandwidth = Annotated[IntOrString | None, Schema(default=0)]
_WholeBandwidth = Annotated[IntOrString | None, Schema(default=100)]


class CPUQoS(WireStruct):
    group_identity: Annotated[int | None, Admission(minimum=-1, maximum=2)] = None
    sched_idle: Switch = None
    core_expeller: bool | None = None


class CPUQoSConfig(CPUQoS):
    enable: bool | None = None


class MemoryQoS(WireStruct):
    min_limit_percent: _PercentNotCapped = None
    """memory.min, in percent of the request."""
    low_limit_percent: _PercentNotCapped = None
    """memory.low, in percent of the request."""
    throttling_percent: _PercentNotCapped = None
    """memory.high, in percent of the way from the request to the limit."""
    wmark_ratio: Percent = None
    wmark_scale_permill: Annotated[int | None, Schema(minimum=1, maximum=1000), Admission(minimum=1, maximum=1000)] = (
        None
    )
    wmark_min_adj: Annotated[int | None, Schema(minimum=-25, maximum=50), Admission(minimum=-25, maximum=50)] = None
    priority_enable: Switch = None
    priority: Annotated[int | None, Admission(minimum=0, maximum=12)] = None
    oom_kill_group: Switch = None
    page_cache_enable: bool | None = None
    page_cache_limit_percent: Percent = None
    page_cache_limit_size: int | None = None
    """Bytes; goes before the percentage."""
    page_cache_reclaim_sync: bool | None = None


class MemoryQoSConfig(MemoryQoS):
    enable: bool | None = None


class ResctrlQoS(WireStruct):
    cat_range_start_percent: Annotated[
        int | None,
        Schema(minimum=0, maximum=100),
        Admission(minimum=0, maximum=100, less_than="cat_range_end_percent"),
    ] = None
    """Of the last-level cache."""
    cat_range_end_percent: Annotated[
        int | None,
        Schema(minimum=0, maximum=100),
        Admission(minimum=0, maximum=100, greater_than="cat_range_start_percent"),
    ] = None
    mba_percent: Percent = None
    """Of the memory bandwidth."""


class ResctrlQoSConfig(ResctrlQoS):
    enable: bool | None = None


class IOConfig(WireStruct):
    """Limits per second (0 is none), weight and latency targets of one block device."""

    read_iops: NotNegative = msgspec.field(default=None, name="readIOPS")
    write_iops: NotNegative = msgspec.field(default=None, name="writeIOPS")
    read_bps: NotNegative = msgspec.field(default=None, name="readBPS")
    write_bps: NotNegative = msgspec.field(default=None, name="writeBPS")
    io_weight_percent: Annotated[int | None, Schema(minimum=1, maximum=100)] = None
    read_latency: int | None = None
    """Microseconds."""
    write_latency: int | None = None
    """Microseconds."""
    read_latency_percent: Annotated[int | None, Schema(minimum=0, maximum=100)] = None
    write_latency_percent: Annotated[int | None, Schema(minimum=0, maximum=100)] = None
    enable_user_model: bool | None = None
    model_read_bps: Positive = msgspec.field(default=None, name="modelReadBPS")
    model_write_bps: Positive = msgspec.field(default=None, name="modelWriteBPS")
    model_read_seq_iops: Positive = msgspec.field(default=None, name="modelReadSeqIOPS")
    model_write_seq_iops: Positive = msgspec.field(default=None, name="modelWriteSeqIOPS")
    model_read_rand_iops: Positive = msgspec.field(default=None, name="modelReadRandIOPS")
    model_write_rand_iops: Positive = msgspec.field(default=None, name="modelWriteRandIOPS")


class BlockConfig(WireStruct):
    name: str = ""
    type: str = ""
    """device, volumegroup or podvolume."""
    io_cfg: IOConfig = IOConfig()


class BlkioQoS(WireStruct):
    blocks: list[BlockConfig] = []


class BlkioQoSConfig(BlkioQoS):
    enable: bool | None = None


class NetworkQoS(WireStruct):
    """Each value is a percentage of the node's bandwidth as a number, or a quantity as text."""

    ingress_request: _NoBandwidth = None
    ingress_limit: _WholeBandwidth = None
    egress_request: _NoBandwidth = None
    egress_limit: _WholeBandwidth = None


class NetworkQoSConfig(NetworkQoS):
    enable: bool | None = None


class ResourceQoS(WireStruct):
    """Of one class of pods."""

    cpu_qos: CPUQoSConfig | None = msgspec.field(default=None, name="cpuQOS")
    memory_qos: MemoryQoSConfig | None = msgspec.field(default=None, name="memoryQOS")
    blkio_qos: BlkioQoSConfig | None = msgspec.field(default=None, name="blkioQOS")
    resctrl_qos: ResctrlQoSConfig | None = msgspec.field(default=None, name="resctrlQOS")
    network_qos: NetworkQoSConfig | None = msgspec.field(default=None, name="networkQOS")


class ResourceQoSPolicies(WireStruct):
    cpu_policy: str | None = None
    """groupIdentity or coreSched."""
    network_policy: str | None = msgspec.field(default=None, name="netQOSPolicy")
    """tc or terway-qos."""


class ResourceQoSStrategy(WireStruct):
    policies: ResourceQoSPolicies | None = None
    lsr_class: ResourceQoS | None = None
    ls_class: ResourceQoS | None = None
    be_class: ResourceQoS | None = None
    system_class: ResourceQoS | None = None
    cgroup_root: ResourceQoS | None = None
    """Of the node as a whole; only its blkioQOS is used."""

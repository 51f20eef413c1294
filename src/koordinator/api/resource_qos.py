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
    """The group identity of the kernel's scheduler, from -1 (gives way) to 2 (goes before)."""
    sched_idle: Switch = None
    """1: runs only where nothing else wants to (cpu.idle)."""
    core_expeller: bool | None = None
    """Whether best-effort pods are kept off the sibling threads of its CPUs (core scheduling)."""


class CPUQoSConfig(CPUQoS):
    """CPU."""

    enable: bool | None = None
    """Whether these settings are applied."""


class MemoryQoS(WireStruct):
    min_limit_percent: _PercentNotCapped = None
    """memory.min, in percent of the request."""
    low_limit_percent: _PercentNotCapped = None
    """memory.low, in percent of the request."""
    throttling_percent: _PercentNotCapped = None
    """memory.high, in percent of the way from the request to the limit."""
    wmark_ratio: Percent = None
    """From which use on memory is reclaimed in the background, in percent of the limit; 0 is never."""
    wmark_scale_permill: Annotated[int | None, Schema(minimum=1, maximum=1000), Admission(minimum=1, maximum=1000)] = (
        None
    )
    """How far below that reclaim stops, in thousandths."""
    wmark_min_adj: Annotated[int | None, Schema(minimum=-25, maximum=50), Admission(minimum=-25, maximum=50)] = None
    """How much the global watermark is moved for it, in percent."""
    priority_enable: Switch = None
    """Whether the priority below decides who is killed first when memory runs out."""
    priority: Annotated[int | None, Admission(minimum=0, maximum=12)] = None
    """From 0 (killed first) to 12."""
    oom_kill_group: Switch = None
    """1: all of a container's processes are killed together."""
    page_cache_enable: bool | None = None
    """Whether the page cache is limited."""
    page_cache_limit_percent: Percent = None
    """The most page cache, in percent of the memory limit."""
    page_cache_limit_size: int | None = None
    """Bytes; goes before the percentage."""
    page_cache_reclaim_sync: bool | None = None
    """Whether the page cache is reclaimed at once, instead of in the background."""


class MemoryQoSConfig(MemoryQoS):
    """Memory."""

    enable: bool | None = None
    """Whether these settings are applied."""


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
    """Of the last-level cache; the part up to here, from the start, may be used."""
    mba_percent: Percent = None
    """Of the memory bandwidth."""


class ResctrlQoSConfig(ResctrlQoS):
    """Last-level cache and memory bandwidth (resctrl)."""

    enable: bool | None = None
    """Whether these settings are applied."""


class IOConfig(WireStruct):
    """Limits per second (0 is none), weight and latency targets of one block device."""

    read_iops: NotNegative = msgspec.field(default=None, name="readIOPS")
    """Reads per second."""
    write_iops: NotNegative = msgspec.field(default=None, name="writeIOPS")
    """Writes per second."""
    read_bps: NotNegative = msgspec.field(default=None, name="readBPS")
    """Bytes read per second."""
    write_bps: NotNegative = msgspec.field(default=None, name="writeBPS")
    """Bytes written per second."""
    io_weight_percent: Annotated[int | None, Schema(minimum=1, maximum=100)] = None
    """The share of the disk when it is busy."""
    read_latency: int | None = None
    """Microseconds."""
    write_latency: int | None = None
    """Microseconds."""
    read_latency_percent: Annotated[int | None, Schema(minimum=0, maximum=100)] = None
    """The share of reads that must be faster than readLatency."""
    write_latency_percent: Annotated[int | None, Schema(minimum=0, maximum=100)] = None
    """The share of writes that must be faster than writeLatency."""
    enable_user_model: bool | None = None
    """Whether the figures below describe the disk, instead of the kernel's own."""
    model_read_bps: Positive = msgspec.field(default=None, name="modelReadBPS")
    """Bytes that the disk reads per second."""
    model_write_bps: Positive = msgspec.field(default=None, name="modelWriteBPS")
    """Bytes that the disk writes per second."""
    model_read_seq_iops: Positive = msgspec.field(default=None, name="modelReadSeqIOPS")
    """Sequential reads that the disk does per second."""
    model_write_seq_iops: Positive = msgspec.field(default=None, name="modelWriteSeqIOPS")
    """Sequential writes that the disk does per second."""
    model_read_rand_iops: Positive = msgspec.field(default=None, name="modelReadRandIOPS")
    """Random reads that the disk does per second."""
    model_write_rand_iops: Positive = msgspec.field(default=None, name="modelWriteRandIOPS")
    """Random writes that the disk does per second."""


class BlockConfig(WireStruct):
    """One disk and what may be done on it."""

    name: str = ""
    """The name of the device, of the volume group or of the pod's volume."""
    type: str = ""
    """device, volumegroup or podvolume."""
    io_cfg: IOConfig = IOConfig()
    """Limits, weight and latency targets."""


class BlkioQoS(WireStruct):
    blocks: list[BlockConfig] = []
    """Disks, and what may be done on each."""


class BlkioQoSConfig(BlkioQoS):
    """Disk I/O."""

    enable: bool | None = None
    """Whether these settings are applied."""


class NetworkQoS(WireStruct):
    """Each value is a percentage of the node's bandwidth as a number, or a quantity as text."""

    ingress_request: _NoBandwidth = None
    """Incoming bandwidth that is guaranteed."""
    ingress_limit: _WholeBandwidth = None
    """The most incoming bandwidth."""
    egress_request: _NoBandwidth = None
    """Outgoing bandwidth that is guaranteed."""
    egress_limit: _WholeBandwidth = None
    """The most outgoing bandwidth."""


class NetworkQoSConfig(NetworkQoS):
    """Network bandwidth. Each value is a percentage of the node's as a number, or a quantity as text."""

    enable: bool | None = None
    """Whether these settings are applied."""


class ResourceQoS(WireStruct):
    """Of one class of pods."""

    cpu_qos: CPUQoSConfig | None = msgspec.field(default=None, name="cpuQOS")
    """CPU."""
    memory_qos: MemoryQoSConfig | None = msgspec.field(default=None, name="memoryQOS")
    """Memory."""
    blkio_qos: BlkioQoSConfig | None = msgspec.field(default=None, name="blkioQOS")
    """Disk I/O."""
    resctrl_qos: ResctrlQoSConfig | None = msgspec.field(default=None, name="resctrlQOS")
    """Last-level cache and memory bandwidth."""
    network_qos: NetworkQoSConfig | None = msgspec.field(default=None, name="networkQOS")
    """Network bandwidth."""


class ResourceQoSPolicies(WireStruct):
    """Which of the kernel's means are used where there are several."""

    cpu_policy: str | None = None
    """groupIdentity or coreSched."""
    network_policy: str | None = msgspec.field(default=None, name="netQOSPolicy")
    """tc or terway-qos."""


class ResourceQoSStrategy(WireStruct):
    """What each class of pods gets of the kernel's means of isolation."""

    policies: ResourceQoSPolicies | None = None
    """Which of the kernel's means are used where there are several."""
    lsr_class: ResourceQoS | None = None
    """Of LSR pods, which have CPUs of their own."""
    ls_class: ResourceQoS | None = None
    """Of LS pods: latency-sensitive, on shared CPUs."""
    be_class: ResourceQoS | None = None
    """Of BE pods: best effort."""
    system_class: ResourceQoS | None = None
    """Of the system's own processes."""
    cgroup_root: ResourceQoS | None = None
    """Of the node as a whole; only its blkioQOS is used."""

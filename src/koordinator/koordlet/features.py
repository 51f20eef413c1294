"""The feature gates of koordlet: the original's with its defaults, and one of ours."""

from __future__ import annotations

from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage

WITHOUT_EFFECT: Final = ("HamiCoreVGPUMonitor", "Libpfm4")
"""Gates of features that are not built yet, or that nothing goes by yet; switching one on is said at the start."""

NODE_TOPOLOGY_REPORT: Final = "NodeTopologyReport"

ACCELERATORS: Final = "Accelerators"
RDMA_DEVICES: Final = "RDMADevices"
PSI_COLLECTOR: Final = "PSICollector"
CPI_COLLECTOR: Final = "CPICollector"
COLD_PAGE_COLLECTOR: Final = "ColdPageCollector"
RESCTRL_COLLECTOR: Final = "ResctrlCollector"
BLOCK_IO_RECONCILE: Final = "BlkIOReconcile"
HUGE_PAGE_REPORT: Final = "HugePageReport"
NODE_METRIC_PROM_METRICS: Final = "NodeMetricPromMetrics"
POD_RESOURCES_PROXY: Final = "PodResourcesProxy"
AUDIT_EVENTS: Final = "AuditEvents"
AUDIT_EVENTS_HTTP_HANDLER: Final = "AuditEventsHTTPHandler"

BE_CPU_SUPPRESS: Final = "BECPUSuppress"
BE_CPU_MANAGER: Final = "BECPUManager"
CPU_BURST: Final = "CPUBurst"
RDT_RESCTRL: Final = "RdtResctrl"
BE_CPU_EVICT: Final = "BECPUEvict"
CPU_EVICT: Final = "CPUEvict"
CPU_ALLOCATABLE_EVICT: Final = "CPUAllocatableEvict"
BE_MEMORY_EVICT: Final = "BEMemoryEvict"
MEMORY_EVICT: Final = "MemoryEvict"
MEMORY_ALLOCATABLE_EVICT: Final = "MemoryAllocatableEvict"
SYSTEM_CONFIG: Final = "SystemConfig"
CGROUP_RECONCILE: Final = "CgroupReconcile"
TERWAY_QOS: Final = "TerwayQoS"

GROUP_IDENTITY: Final = "GroupIdentity"
CPUSET_ALLOCATOR: Final = "CPUSetAllocator"
BATCH_RESOURCE: Final = "BatchResource"
CPU_NORMALIZATION: Final = "CPUNormalization"
GPU_ENV_INJECT: Final = "GPUEnvInject"
RDMA_DEVICE_INJECT: Final = "RDMADeviceInject"
OOM_SCORE_ADJ: Final = "OOMScoreAdj"
CORE_SCHED: Final = "CoreSched"
RESCTRL: Final = "Resctrl"
TC_NETWORK_QOS: Final = "TCNetworkQoS"
PER_CPU_METRIC: Final = "PerCPUMetric"
INTERFERENCE_DETECTION: Final = "InterferenceDetection"
"""Not one of the original's."""

ENFORCING: Final = {
    BE_CPU_SUPPRESS: True,
    CPU_BURST: True,
    RDT_RESCTRL: True,
    BE_CPU_MANAGER: False,
    BE_CPU_EVICT: False,
    CPU_EVICT: False,
    CPU_ALLOCATABLE_EVICT: False,
    BE_MEMORY_EVICT: False,
    MEMORY_EVICT: False,
    MEMORY_ALLOCATABLE_EVICT: False,
    SYSTEM_CONFIG: False,
    CGROUP_RECONCILE: False,
    BLOCK_IO_RECONCILE: False,
    TERWAY_QOS: False,
    GROUP_IDENTITY: True,
    CPUSET_ALLOCATOR: True,
    BATCH_RESOURCE: True,
    CPU_NORMALIZATION: False,
    GPU_ENV_INJECT: False,
    RDMA_DEVICE_INJECT: False,
    OOM_SCORE_ADJ: False,
    CORE_SCHED: False,
    RESCTRL: False,
    TC_NETWORK_QOS: False,
}
"""Gates of what is done to the node, and their defaults; the NodeSLO switches each of them as well."""

_OBSERVING: Final = (
    ACCELERATORS,
    RDMA_DEVICES,
    PSI_COLLECTOR,
    CPI_COLLECTOR,
    COLD_PAGE_COLLECTOR,
    RESCTRL_COLLECTOR,
    HUGE_PAGE_REPORT,
    NODE_METRIC_PROM_METRICS,
    POD_RESOURCES_PROXY,
    AUDIT_EVENTS,
    AUDIT_EVENTS_HTTP_HANDLER,
    PER_CPU_METRIC,
    INTERFERENCE_DETECTION,
)
"""Gates of measurements and reports; off unless they are switched on."""


def make_features() -> FeatureGates:
    """All gates, as a command line finds them."""
    gates = {NODE_TOPOLOGY_REPORT: Feature(default=True, stage=Stage.BETA)}
    gates |= {
        name: Feature(default=is_on, stage=Stage.BETA if is_on else Stage.ALPHA) for name, is_on in ENFORCING.items()
    }
    return FeatureGates(gates | {name: Feature(default=False) for name in (*_OBSERVING, *WITHOUT_EFFECT)})

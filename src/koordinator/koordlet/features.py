"""The feature gates of koordlet, with the original's defaults."""

from __future__ import annotations

from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage

_ON: Final = ("BECPUSuppress", "CPUBurst", "RdtResctrl", "GroupIdentity", "CPUSetAllocator", "BatchResource")
_OFF: Final = (
    "BECPUManager",
    "BECPUEvict",
    "CPUEvict",
    "CPUAllocatableEvict",
    "BEMemoryEvict",
    "MemoryEvict",
    "MemoryAllocatableEvict",
    "SystemConfig",
    "CgroupReconcile",
    "HamiCoreVGPUMonitor",
    "Libpfm4",
    "PodResourcesProxy",
    "PerCPUMetric",
    "CPUNormalization",
    "GPUEnvInject",
    "RDMADeviceInject",
    "OOMScoreAdj",
    "CoreSched",
    "Resctrl",
    "TCNetworkQoS",
    "TerwayQoS",
)

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
AUDIT_EVENTS: Final = "AuditEvents"
AUDIT_EVENTS_HTTP_HANDLER: Final = "AuditEventsHTTPHandler"

_OBSERVING: Final = (
    ACCELERATORS,
    RDMA_DEVICES,
    PSI_COLLECTOR,
    CPI_COLLECTOR,
    COLD_PAGE_COLLECTOR,
    RESCTRL_COLLECTOR,
    BLOCK_IO_RECONCILE,
    HUGE_PAGE_REPORT,
    NODE_METRIC_PROM_METRICS,
    AUDIT_EVENTS,
    AUDIT_EVENTS_HTTP_HANDLER,
)
"""Gates of what is measured and told; off unless they are switched on."""


def make_features() -> FeatureGates:
    """All gates, as a command line finds them."""
    gates = {name: Feature(default=True, stage=Stage.BETA) for name in (NODE_TOPOLOGY_REPORT, *_ON)}
    return FeatureGates(gates | {name: Feature(default=False) for name in (*_OBSERVING, *_OFF)})


WITHOUT_EFFECT: Final = frozenset({BLOCK_IO_RECONCILE, *_ON, *_OFF})
"""Gates of features that are not built yet, or that nothing goes by yet; switching one on is said at the start."""

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
    "Accelerators",
    "RDMADevices",
    "CPICollector",
    "Libpfm4",
    "ResctrlCollector",
    "PSICollector",
    "BlkIOReconcile",
    "ColdPageCollector",
    "HugePageReport",
    "PodResourcesProxy",
    "AuditEvents",
    "AuditEventsHTTPHandler",
    "PerCPUMetric",
    "NodeMetricPromMetrics",
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


def make_features() -> FeatureGates:
    """All gates, as a command line finds them."""
    gates = {name: Feature(default=True, stage=Stage.BETA) for name in (NODE_TOPOLOGY_REPORT, *_ON)}
    return FeatureGates(gates | {name: Feature(default=False) for name in _OFF})


WITHOUT_EFFECT: Final = frozenset({NODE_TOPOLOGY_REPORT, *_ON, *_OFF})
"""Gates of features that are not built yet; switching one on is said at the start."""

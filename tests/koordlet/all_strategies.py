"""Everything that koordlet and the original enforce alike: the gates, the NodeSLO and pods that make use of each."""

from __future__ import annotations

import json
from typing import Any, Final

GATES: Final = (
    *("BECPUSuppress", "CPUBurst", "RdtResctrl", "CgroupReconcile", "SystemConfig"),
    *("BECPUEvict", "CPUEvict", "CPUAllocatableEvict", "BEMemoryEvict", "MemoryEvict", "MemoryAllocatableEvict"),
    *("GroupIdentity", "CPUSetAllocator", "BatchResource", "CPUNormalization", "OOMScoreAdj"),
)
"""All but BlkIOReconcile, for which the original wants LVM's programs."""
LIMIT: Final = "20m"
BATCH_MILLI: Final = 20
BATCH_MEBIBYTES: Final = 8
_BATCH: Final = {"kubernetes.io/batch-cpu": str(BATCH_MILLI), "kubernetes.io/batch-memory": f"{BATCH_MEBIBYTES}Mi"}
_MEMORY_QOS: Final = {"minLimitPercent": 30, "lowLimitPercent": 60, "throttlingPercent": 50, "oomKillGroup": 0}


def node_slo_spec(suppress: str = "cfsQuota") -> dict[str, Any]:
    """The NodeSLO that requests everything; ``suppress`` is the policy of CPU suppression."""
    return {
        "resourceUsedThresholdWithBE": {
            "enable": True,
            "cpuSuppressPolicy": suppress,
            "cpuSuppressThresholdPercent": 65,
            # Nobody goes: what is used never comes near.
            "memoryEvictThresholdPercent": 99,
            "cpuEvictThresholdPercent": 99,
            "cpuEvictBESatisfactionLowerPercent": 1,
            "cpuEvictBESatisfactionUpperPercent": 2,
            "evictEnabledPriorityThreshold": 5999,
            "allocatableEvictPriorityThreshold": 5999,
            "cpuAllocatableEvictThresholdPercent": 200,
            "cpuAllocatableEvictLowerPercent": 190,
            "memoryAllocatableEvictThresholdPercent": 200,
            "memoryAllocatableEvictLowerPercent": 190,
        },
        "cpuBurstStrategy": {"policy": "auto"},
        "resourceQOSStrategy": {
            name: {"memoryQOS": {"enable": True, **_MEMORY_QOS}, "resctrlQOS": {"enable": True}}
            for name in ("lsrClass", "lsClass", "beClass")
        },
        "systemStrategy": {"watermarkScaleFactor": 20},
    }


def qos_of(number: int) -> str:
    """Every third pod is BE, LS or LSR."""
    return ("BE", "LS", "LSR")[number % 3]


def resources_of(qos: str, container: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What the container of a pod of the class requests, and the annotations of the pod."""
    if qos == "BE":
        batch = {"requests": _BATCH, "limits": _BATCH}
        extended = {"containers": {container: batch}}
        return batch, {"node.koordinator.sh/extended-resource-spec": json.dumps(extended)}
    limits = {"cpu": LIMIT, "memory": "16Mi"}
    if qos == "LS":
        return (
            {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": limits},
            {"koordinator.sh/oom-score-adj": "500"},
        )
    return (
        {"requests": limits, "limits": limits},
        {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1"})},
    )

"""Annotations of nodes and pods that say what cannot be. No API server reads them: whoever may write the object may
write anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from koordinator.api import annotations as keys
from koordinator.api.kinds import NODES, PODS
from tests.real_world.broken_documents import BrokenObject, node_document, pod_document

_GANG = {keys.GANG_NAME: "broken"}
_SOUND_GANG = {**_GANG, keys.GANG_MIN_AVAILABLE: "2"}


def _of_node(name: str, what: str, key: str, value: str) -> BrokenObject:
    return BrokenObject(f"node-{name}", what, NODES, f"metadata.annotations[{key}]", node_document({key: value}))


def _of_pod(name: str, what: str, key: str, value: str, others: Mapping[str, str] | None = None) -> BrokenObject:
    document = pod_document({**(others or {}), key: value})
    return BrokenObject(f"pod-{name}", what, PODS, f"metadata.annotations[{key}]", document)


BROKEN_ANNOTATIONS: Final[Sequence[BrokenObject]] = (
    _of_node("raw-allocatable-text", "no JSON", keys.RAW_ALLOCATABLE, "soon"),
    _of_node("raw-allocatable-below-zero", "a node of less than nothing", keys.RAW_ALLOCATABLE, '{"cpu":"-8"}'),
    _of_node("ratio-zero", "CPUs amplified by nothing", keys.RESOURCE_AMPLIFICATION_RATIO, '{"cpu":0}'),
    _of_node("ratio-below-zero", "CPUs amplified by less", keys.RESOURCE_AMPLIFICATION_RATIO, '{"cpu":-2}'),
    _of_node("ratio-huge", "CPUs without end", keys.RESOURCE_AMPLIFICATION_RATIO, '{"cpu":1e308}'),
    _of_node("ratio-text", "a ratio that is no number", keys.CPU_NORMALIZATION_RATIO, "NaN"),
    _of_node(
        "reservation-below-zero",
        "less than nothing is kept from pods",
        keys.NODE_RESERVATION,
        '{"resources":{"cpu":"-100"},"reservedCPUs":"0-99999999"}',
    ),
    _of_node("load-thresholds", "a threshold beyond 100 %", keys.USAGE_THRESHOLDS, '{"usageThresholds":{"cpu":-9}}'),
    _of_pod("cpus-without-end", "a billion CPUs", keys.RESOURCE_STATUS, '{"cpuset":"0-999999999"}'),
    _of_pod("cpus-backwards", "a range that ends before it begins", keys.RESOURCE_STATUS, '{"cpuset":"7-3"}'),
    _of_pod("resource-spec-text", "no JSON", keys.RESOURCE_SPEC, "{"),
    _of_pod("resource-spec-deep", "JSON without end", keys.RESOURCE_SPEC, "[" * 5000),
    _of_pod("devices-below-zero", "a GPU of a negative number", keys.DEVICE_ALLOCATED, '{"gpu":[{"minor":-1}]}'),
    _of_pod("gang-below-zero", "a gang of less than nobody", keys.GANG_MIN_AVAILABLE, "-1", _GANG),
    _of_pod("gang-huge", "a gang of more than a number holds", keys.GANG_MIN_AVAILABLE, "1e99", _GANG),
    _of_node("reserves-below-zero", "less than nothing is kept", keys.NODE_RESERVATION, '{"resources":{"cpu":"-99"}}'),
    _of_node("raw-allocatable-huge", "a node without end", keys.RAW_ALLOCATABLE, '{"cpu":"1e99999"}'),
    _of_node("ratio-nan", "a ratio that is no number", keys.RESOURCE_AMPLIFICATION_RATIO, '{"cpu":NaN}'),
    _of_node(
        "load-thresholds-huge",
        "a threshold beyond an int64",
        keys.USAGE_THRESHOLDS,
        '{"usageThresholds":{"cpu":9223372036854775807},"prodUsageThresholds":{"memory":-1}}',
    ),
    _of_pod(
        "numa-node-below-zero",
        "less than nothing of a NUMA node that cannot be",
        keys.RESOURCE_STATUS,
        '{"cpuset":"0-1","numaNodeResources":[{"node":-1,"resources":{"cpu":"-4"}}]}',
    ),
    _of_pod(
        "numa-node-huge",
        "a NUMA node beyond all machines",
        keys.RESOURCE_STATUS,
        '{"numaNodeResources":[{"node":9000000000000000,"resources":{"cpu":"1e99999"}}]}',
    ),
    _of_pod(
        "device-amount-below-zero",
        "less than nothing of a GPU",
        keys.DEVICE_ALLOCATED,
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"-100"}}]}',
    ),
    _of_pod(
        "device-huge",
        "a GPU of a number without end",
        keys.DEVICE_ALLOCATED,
        '{"gpu":[{"minor":9000000000000000000,"resources":{"koordinator.sh/gpu-core":"1e99999"}}]}',
    ),
    _of_pod("device-text", "no JSON", keys.DEVICE_ALLOCATED, "{bad"),
    _of_pod(
        "extended-resources-below-zero",
        "a container that requests less than nothing",
        keys.EXTENDED_RESOURCE_SPEC,
        '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"-1"}}}}',
    ),
    _of_pod("estimate-huge", "a usage without end", keys.LOAD_ESTIMATED_SCALING_FACTORS, '{"cpu":1e99}'),
    _of_pod("estimate-below-zero", "a usage below zero", keys.LOAD_ESTIMATED_SCALING_FACTORS, '{"cpu":-300}'),
    _of_pod("estimated-for-ever", "no number", keys.LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED, "1e99"),
    _of_pod("gang-waits-below-zero", "less than no time", keys.GANG_WAITING_TIME, "-1h", _SOUND_GANG),
    _of_pod("gang-waits-for-ever", "time without end", keys.GANG_WAITING_TIME, "9999999999h", _SOUND_GANG),
    _of_pod("gang-total-below-zero", "less than nobody", keys.GANG_TOTAL_NUMBER, "-5", _SOUND_GANG),
    _of_pod("gang-groups-text", "no JSON", keys.GANG_GROUPS, "{", _SOUND_GANG),
    _of_pod("gang-topology-text", "no JSON", keys.GANG_NETWORK_TOPOLOGY_SPEC, "{", _SOUND_GANG),
    _of_pod("gang-index-huge", "no number", keys.GANG_NETWORK_TOPOLOGY_INDEX, "1e99", _SOUND_GANG),
    _of_pod("affinity-text", "no JSON", keys.RESERVATION_AFFINITY, "{"),
    _of_pod("record-text", "no JSON", keys.RESERVATION_ALLOCATED, "{"),
    _of_pod("record-of-nothing", "a Reservation that is not there", keys.RESERVATION_ALLOCATED, '{"uid":"gone"}'),
    _of_pod("priority-huge", "no number", keys.PRE_ALLOCATABLE_PRIORITY, "1e99"),
    _of_pod("hint-text", "no JSON", keys.SCHEDULING_HINT, "["),
    _of_pod("numa-policy-text", "no policy", keys.NUMA_TOPOLOGY_SPEC, '{"numaTopologyPolicy":"-1"}'),
    _of_pod("device-hint-text", "no JSON", keys.DEVICE_ALLOCATE_HINT, "{"),
    _of_pod("partition-text", "no JSON", keys.GPU_PARTITION_SPEC, "{"),
)

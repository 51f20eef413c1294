"""Objects that an API server accepts and that say what cannot be: numbers below zero or beyond all bounds, texts that
are no JSON, references to nothing.

Each costs its own author alone: every program goes on with all others, and names the object and its field. All of them
are about the node BROKEN_NODE or the namespace BROKEN_NAMESPACE, so that a test puts healthy objects beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from koordinator.api import annotations as keys
from koordinator.api.kinds import (
    DEVICES,
    ELASTIC_QUOTAS,
    NODE_RESOURCE_TOPOLOGIES,
    POD_GROUPS,
    RESERVATIONS,
    Kind,
)
from tests.real_world.broken_annotations import BROKEN_ANNOTATIONS
from tests.real_world.broken_documents import (
    BROKEN_NAMESPACE as BROKEN_NAMESPACE,
)
from tests.real_world.broken_documents import (
    BROKEN_NODE as BROKEN_NODE,
)
from tests.real_world.broken_documents import (
    BrokenObject as BrokenObject,
)
from tests.real_world.broken_documents import (
    device_document,
    pod_group_document,
    quota_document,
    reservation_document,
    topology_document,
)
from tests.real_world.broken_metrics import BROKEN_METRICS


def _placed(allocatable: dict[str, str]) -> dict[str, Any]:
    return {"phase": "Available", "nodeName": BROKEN_NODE, "allocatable": allocatable}


BROKEN_OBJECTS: Final[Sequence[BrokenObject]] = (
    *BROKEN_METRICS,
    *BROKEN_ANNOTATIONS,
    BrokenObject(
        "quota-below-zero",
        "a min and a max below zero",
        ELASTIC_QUOTAS,
        "spec.min.cpu",
        quota_document("-1", "-2"),
    ),
    BrokenObject(
        "quota-weight-below-zero",
        "a weight below zero",
        ELASTIC_QUOTAS,
        f"metadata.annotations[{keys.QUOTA_SHARED_WEIGHT}]",
        quota_document("1", "2", {keys.QUOTA_SHARED_WEIGHT: '{"cpu":"-1"}'}),
    ),
    BrokenObject(
        "quota-beyond-all-bounds",
        "a min that no machine number holds",
        ELASTIC_QUOTAS,
        "spec.min.cpu",
        quota_document("1e99999", "1e99999"),
    ),
    BrokenObject(
        "device-below-zero", "a minor number below zero", DEVICES, "spec.devices[0].minor", device_document(minor=-1)
    ),
    BrokenObject(
        "device-amount-below-zero",
        "a GPU of less than nothing",
        DEVICES,
        "spec.devices[0].resources",
        device_document(resources={"koordinator.sh/gpu-core": "-100"}),
    ),
    BrokenObject(
        "topology-below-zero",
        "a NUMA node of less than nothing",
        NODE_RESOURCE_TOPOLOGIES,
        "zones[0].resources[0].allocatable",
        topology_document("-4"),
    ),
    BrokenObject(
        "topology-beyond-all-bounds",
        "a NUMA node that no machine number holds",
        NODE_RESOURCE_TOPOLOGIES,
        "zones[0].resources[0].allocatable",
        topology_document("1e99999"),
    ),
    BrokenObject(
        "reservation-below-zero",
        "less than nothing is reserved",
        RESERVATIONS,
        "spec.template",
        reservation_document("-4"),
    ),
    BrokenObject(
        "reservation-ttl-text",
        "a time to live that is none",
        RESERVATIONS,
        "spec.ttl",
        reservation_document("1", ttl="-5h"),
    ),
    BrokenObject(
        "pod-group-below-zero", "a gang of less than nobody", POD_GROUPS, "spec.minMember", pod_group_document(-1)
    ),
    BrokenObject(
        "pod-group-wait-below-zero",
        "a gang that waits less than no time",
        POD_GROUPS,
        "spec.scheduleTimeoutSeconds",
        pod_group_document(2, scheduleTimeoutSeconds=-1),
    ),
    BrokenObject(
        "device-number-huge",
        "a minor number beyond all machines",
        DEVICES,
        "spec.devices[0].minor",
        device_document(minor=2147483647, topology={"nodeID": 2147483647, "socketID": -1, "pcieID": ""}),
    ),
    BrokenObject(
        "device-amount-beyond-all-bounds",
        "a GPU without end",
        DEVICES,
        "spec.devices[0].resources",
        device_document(resources={"koordinator.sh/gpu-core": "1e99999"}),
    ),
    BrokenObject(
        "topology-cpu-huge",
        "a CPU of a number that no machine has",
        NODE_RESOURCE_TOPOLOGIES,
        f"metadata.annotations[{keys.CPU_TOPOLOGY}]",
        topology_document("4", {keys.CPU_TOPOLOGY: '{"detail":[{"id":1000000000000,"core":0,"socket":0,"node":0}]}'}),
    ),
    BrokenObject(
        "topology-ratio-huge",
        "NUMA nodes without end",
        NODE_RESOURCE_TOPOLOGIES,
        f"metadata.annotations[{keys.RESOURCE_AMPLIFICATION_RATIO}]",
        topology_document("4", {keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":1e308}'}),
    ),
    BrokenObject(
        "topology-zone-huge",
        "a NUMA node of a number that no machine has",
        NODE_RESOURCE_TOPOLOGIES,
        "zones[0].name",
        topology_document("4", zones=["node-1000000000000", "node-" + "9" * 5000]),
    ),
    BrokenObject(
        "topology-of-many-zones",
        "more NUMA nodes than all sets of them can be tried",
        NODE_RESOURCE_TOPOLOGIES,
        "zones",
        topology_document("4", zones=[f"node-{number}" for number in range(60)]),
    ),
    BrokenObject(
        "reservation-holds-below-zero",
        "less than nothing is held",
        RESERVATIONS,
        "status.allocatable",
        {**reservation_document("4"), "status": _placed({"cpu": "-4"})},
    ),
    BrokenObject(
        "reservation-holds-all",
        "more than there is is held",
        RESERVATIONS,
        "status.allocatable",
        {**reservation_document("4"), "status": _placed({"cpu": "1e99999"})},
    ),
    BrokenObject(
        "pod-group-huge",
        "a gang of all numbers",
        POD_GROUPS,
        "spec.minMember",
        pod_group_document(2147483647, scheduleTimeoutSeconds=2147483647),
    ),
)


def broken_objects(kind: Kind[Any]) -> list[BrokenObject]:
    """Those of one kind."""
    return [broken for broken in BROKEN_OBJECTS if broken.kind == kind]

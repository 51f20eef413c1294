"""Which events make a pod be tried again that a volume plugin has rejected nodes for."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Kind,
)
from koordinator.api.pod import AWSElasticBlockStoreVolumeSource, Pod, Volume
from koordinator.api.volume import TopologySelectorTerm
from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_event
from tests.scheduler.plugins.volumes.storage import (
    DRIVER,
    Storage,
    attachment,
    capacity,
    changed,
    claim,
    csi_node,
    driver,
    node,
    pod,
    storage_class,
    volume,
)

WAITING = pod("p", "c", ephemeral=["e"])
AWS = Volume(name="d", aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(volume_id="vol-1"))
NODE_ADDED = ClusterEvent(EventKind.NODE_ADD, None, node("a"))


def event(kind: Kind[Any], old: Any, new: Any) -> ClusterEvent:
    return ClusterEvent(object_event(kind, old, new), old, new)


def wakes(name: str, what: ClusterEvent, waiting: Pod = WAITING, storage: Storage | None = None) -> bool:
    """Whether the plugin registers for the event and expects help of it."""
    found = storage or Storage(storage_class("wait"), claim("c"))
    plugin = found.plugins[name]
    return what.kind in plugin.events_to_register() and plugin.queueing_hint(found.info(waiting), what)


def gone(other: Pod) -> ClusterEvent:
    return ClusterEvent(EventKind.POD_DELETE, Storage().info(other))


elsewhere = changed(claim("c"), namespace="other")
BINDING = {
    "new class": (event(STORAGE_CLASSES, None, storage_class("x")), True),
    "other topologies": (
        event(STORAGE_CLASSES, storage_class("x"), storage_class("x", allowed=[TopologySelectorTerm()])),
        True,
    ),
    "class as before": (event(STORAGE_CLASSES, storage_class("x"), storage_class("x", version="2")), False),
    "class deleted": (event(STORAGE_CLASSES, storage_class("x"), None), False),
    "its claim": (event(PERSISTENT_VOLUME_CLAIMS, claim("c"), claim("c", "v")), True),
    "its ephemeral claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("p-e")), True),
    "another claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("x")), False),
    "claim of another namespace": (event(PERSISTENT_VOLUME_CLAIMS, None, elsewhere), False),
    "new volume": (event(PERSISTENT_VOLUMES, None, volume("v")), True),
    "changed volume": (event(PERSISTENT_VOLUMES, volume("v"), volume("v", "2Gi")), True),
    "new node": (NODE_ADDED, True),
    "new CSI node": (event(CSI_NODES, None, csi_node("a")), True),
    "migrated": (event(CSI_NODES, csi_node("a"), csi_node("a", migrated="x")), True),
    "not migrated": (event(CSI_NODES, csi_node("a"), csi_node("a", {DRIVER: 2})), False),
    "driver stops counting": (event(CSI_DRIVERS, driver(), driver(counts_capacity=False)), True),
    "driver starts counting": (event(CSI_DRIVERS, driver(counts_capacity=None), driver()), False),
    "other driver stops": (event(CSI_DRIVERS, driver("x"), driver("x", counts_capacity=False)), False),
    "new driver": (event(CSI_DRIVERS, None, driver()), False),
    "new room": (event(CSI_STORAGE_CAPACITIES, None, capacity("r", "a", "1Gi")), True),
    "more room": (event(CSI_STORAGE_CAPACITIES, capacity("r", "a", "1Gi"), capacity("r", "a", "2Gi")), True),
    "room at last": (event(CSI_STORAGE_CAPACITIES, capacity("r", "a", None), capacity("r", "a", "2Gi")), True),
    "less room": (event(CSI_STORAGE_CAPACITIES, capacity("r", "a", "2Gi"), capacity("r", "a", "1Gi")), False),
    "room unknown": (event(CSI_STORAGE_CAPACITIES, capacity("r", "a", "2Gi"), capacity("r", "a", None)), False),
    "a pod has gone": (gone(pod("x", "c")), False),
}


@pytest.mark.parametrize(("what", "expected"), BINDING.values(), ids=BINDING)
def test_volume_binding(what: ClusterEvent, expected: bool) -> None:
    assert wakes("VolumeBinding", what) is expected


def test_pod_that_gives_its_volume_back() -> None:
    storage = Storage(node("a"), storage_class("wait", provisioner="kubernetes.io/no-provisioner"), volume("v", on="a"))
    storage.add(claim("c"), claim("c2"))
    other = storage.info(pod("other", "c2"))
    state, node_a = CycleState(other), storage.view.columns.reference(storage.row("a"))
    storage.binding.reserve(state, other, node_a)
    storage.binding.unreserve(state, other, node_a)
    assert wakes("VolumeBinding", ClusterEvent(EventKind.POD_DELETE, other), storage=storage)


RESTRICTIONS = {
    "its claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("c")), True),
    "its claim changed": (event(PERSISTENT_VOLUME_CLAIMS, claim("c"), claim("c", "v")), False),
    "another claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("x")), False),
    "its ephemeral claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("p-e")), False),
    "new node": (NODE_ADDED, True),
    "pod with its claim": (gone(pod("x", "c")), True),
    "pod with its disk": (gone(pod("x", volumes=[AWS])), True),
    "pod with another claim": (gone(pod("x", "y")), False),
    "pod without volumes": (gone(pod("x")), False),
    "pod of another namespace": (gone(changed(pod("x", "c"), namespace="other")), False),
}


@pytest.mark.parametrize(("what", "expected"), RESTRICTIONS.values(), ids=RESTRICTIONS)
def test_volume_restrictions(what: ClusterEvent, expected: bool) -> None:
    assert wakes("VolumeRestrictions", what, pod("p", "c", ephemeral=["e"], volumes=[AWS])) is expected


zone = {"topology.kubernetes.io/zone": "z1"}
ZONES = {
    "class that waits": (event(STORAGE_CLASSES, None, storage_class("x")), True),
    "class that does not": (event(STORAGE_CLASSES, None, storage_class("x", "Immediate")), False),
    "its claim": (event(PERSISTENT_VOLUME_CLAIMS, claim("c"), claim("c", "v")), True),
    "another claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("x")), False),
    "new volume": (event(PERSISTENT_VOLUMES, None, volume("v")), True),
    "other zone": (event(PERSISTENT_VOLUMES, volume("v"), volume("v", labels=zone)), True),
    "same zone": (event(PERSISTENT_VOLUMES, volume("v", labels=zone), volume("v", "2Gi", labels=zone)), False),
    "new node": (NODE_ADDED, True),
    "labels of a node": (ClusterEvent(EventKind.NODE_LABEL, node("a"), node("a", zone="z1")), True),
}


@pytest.mark.parametrize(("what", "expected"), ZONES.values(), ids=ZONES)
def test_volume_zone(what: ClusterEvent, expected: bool) -> None:
    assert wakes("VolumeZone", what) is expected


two, three = csi_node("a", {DRIVER: 2}), csi_node("a", {DRIVER: 3})
LIMITS = {
    "new CSI node": (event(CSI_NODES, None, two), True),
    "higher limit": (event(CSI_NODES, two, three), True),
    "lower limit": (event(CSI_NODES, three, two), False),
    "new limit": (event(CSI_NODES, csi_node("a"), two), True),
    "its claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("c")), True),
    "another claim": (event(PERSISTENT_VOLUME_CLAIMS, None, claim("x")), False),
    "detached": (event(VOLUME_ATTACHMENTS, attachment("x", "a", "v"), None), True),
    "attached": (event(VOLUME_ATTACHMENTS, None, attachment("x", "a", "v")), False),
    "pod with a claim": (gone(pod("x", "y")), True),
    "pod with a disk": (gone(pod("x", volumes=[AWS])), True),
    "pod without volumes": (gone(pod("x")), False),
}


@pytest.mark.parametrize(("what", "expected"), LIMITS.values(), ids=LIMITS)
def test_node_volume_limits(what: ClusterEvent, expected: bool) -> None:
    assert wakes("NodeVolumeLimits", what) is expected


@pytest.mark.parametrize(("attacher", "expected"), [("ebs.csi.aws.com", True), (DRIVER, False)])
def test_detached_from_a_pod_with_disks_of_its_own(attacher: str, expected: bool) -> None:
    what = event(VOLUME_ATTACHMENTS, attachment("x", "a", "v", attacher), None)
    assert wakes("NodeVolumeLimits", what, pod("p", volumes=[AWS])) is expected

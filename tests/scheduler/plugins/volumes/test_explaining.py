"""What ``koord explain`` says about a node that is rejected because of volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from koordinator.api.meta import Object
from koordinator.api.pod import GCEPersistentDiskVolumeSource, Pod, Volume
from koordinator.api.volume import TopologySelectorLabelRequirement, TopologySelectorTerm
from koordinator.scheduler.engine.profile import PluginOrder
from koordinator.scheduler.explain.explainer import Lack
from koordinator.scheduler.explain.sources import filter_nodes
from tests.scheduler.plugins.volumes.storage import (
    DRIVER,
    Storage,
    capacity,
    claim,
    csi,
    csi_node,
    driver,
    node,
    pod,
    storage_class,
    volume,
)

ZONE = "topology.kubernetes.io/zone"
NODE = node("a", zone="z1")
STATIC = storage_class("wait", provisioner="kubernetes.io/no-provisioner")
ONE_POD = ["ReadWriteOncePod"]


def lacks(requesting: Pod, *objects: Object, plugins: Sequence[str] = ()) -> dict[str, list[Lack]]:
    """By the plugins that reject node a, of all volume plugins or of those named."""
    storage = Storage(NODE, *objects)
    profile = storage.profile
    if plugins:
        profile = replace(profile, order=PluginOrder(pre_filter=tuple(plugins), filter=tuple(plugins)))
    filter_results = filter_nodes(profile, storage.view, storage.info(requesting), [storage.row("a")])
    return {objection.plugin: list(objection.lacks) for objection in filter_results.objections(0)}


def texts(requesting: Pod, *objects: Object) -> dict[str, list[str]]:
    return {plugin: [lack.text for lack in found] for plugin, found in lacks(requesting, *objects).items()}


def allowed(*values: str) -> list[TopologySelectorTerm]:
    return [TopologySelectorTerm([TopologySelectorLabelRequirement(key=ZONE, values=list(values))])]


# VolumeBinding.

BINDING: dict[str, tuple[list[Object], str]] = {
    "volume elsewhere": (
        [claim("c", "v"), volume("v", on="b", to="c")],
        "claim c: label kubernetes.io/hostname=b is needed, the node has kubernetes.io/hostname=a for its volume v",
    ),
    "being made elsewhere": (
        [storage_class("wait"), claim("c", annotations={"volume.kubernetes.io/selected-node": "b"}), node("b")],
        "claim c is to be had on node b",
    ),
    "nothing to bind": (
        [STATIC, claim("c", size="5Gi"), volume("v", size="1Gi")],
        "claim c (5Gi): no free volume of class wait suits it here, and none are made on demand",
    ),
    "not made here": (
        [storage_class("wait", allowed=allowed("z2", "z3")), claim("c")],
        f"claim c: volumes of class wait are made only where {ZONE} in (z2, z3)",
    ),
    "no room": (
        [storage_class("wait"), driver(), claim("c", size="5Gi"), capacity("x", "a", "2Gi"), capacity("y", "b", "9Gi")],
        "claim c needs 5Gi of class wait, the largest volume that there is room for here has 2Gi",
    ),
}


@pytest.mark.parametrize(("objects", "text"), BINDING.values(), ids=BINDING)
def test_a_claim_that_cannot_be_had(objects: list[Object], text: str) -> None:
    assert texts(pod("p", "c"), *objects) == {"VolumeBinding": [text]}


def test_a_volume_that_is_gone() -> None:
    """VolumeZone, where it takes part, rejects all nodes before they are looked at."""
    (lack,) = lacks(pod("p", "c"), claim("c", "v"), plugins=["VolumeBinding"])["VolumeBinding"]
    assert lack.text == "claim c: its volume v does not exist"


def test_a_node_with_more_capacity_is_closer() -> None:
    kinds = storage_class("wait"), driver(), claim("c", size="8Gi")
    (little,) = lacks(pod("p", "c"), *kinds, capacity("x", "a", "2Gi"))["VolumeBinding"]
    (more,) = lacks(pod("p", "c"), *kinds, capacity("x", "a", "6Gi"))["VolumeBinding"]
    assert (little.shortfall, more.shortfall) == (0.75, 0.25)


def test_every_claim_is_named() -> None:
    found = texts(pod("p", "c1", "c2"), STATIC, claim("c1"), claim("c2"), volume("v"))
    assert found == {
        "VolumeBinding": ["claim c2 (1Gi): no free volume of class wait suits it here, and none are made on demand"]
    }


# VolumeZone.


def test_a_volume_in_another_zone() -> None:
    found = texts(pod("p", "c"), claim("c", "v"), volume("v", to="c", labels={ZONE: "z2__z3"}))
    assert found == {"VolumeZone": [f"claim c: its volume v is where {ZONE} is z2 or z3, that of the node is z1"]}


def test_a_node_that_has_a_zone_and_no_region() -> None:
    region = "topology.kubernetes.io/region"
    found = texts(pod("p", "c"), claim("c", "v"), volume("v", to="c", labels={region: "r"}))
    assert found == {"VolumeZone": [f"claim c: its volume v is where {region} is r, the node has no such label"]}


# NodeVolumeLimits.


def test_a_driver_that_can_attach_no_more() -> None:
    others = [claim(f"o{n}", f"w{n}") for n in range(2)] + [
        volume(f"w{n}", to=f"o{n}", csi=csi(f"{n}")) for n in range(2)
    ]
    mine = claim("c", "v"), volume("v", to="c", csi=csi("v"))
    found = texts(pod("p", "c"), csi_node("a", {DRIVER: 2}), *others, *mine, pod("other", "o0", "o1", on="a"))
    assert found == {
        "NodeVolumeLimits": [f"{DRIVER} can attach 2 volumes to the node, 2 are, and the pod needs 1 more"]
    }


# VolumeRestrictions.


def test_a_disk_that_another_pod_uses() -> None:
    disk = Volume(name="d", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name="x"))
    found = texts(pod("p", volumes=[disk]), pod("other", volumes=[disk], on="a"))
    assert found == {"VolumeRestrictions": ["volume d: its disk is in use there by default/other"]}


def test_a_claim_that_is_for_one_pod_at_a_time() -> None:
    mine = claim("c", "v", modes=ONE_POD), volume("v", to="c", modes=ONE_POD)
    found = texts(pod("p", "c"), *mine, node("b"), pod("other", "c", on="b"))
    assert found == {
        "VolumeRestrictions": ["claim c is for one pod at a time (ReadWriteOncePod), default/other uses it"]
    }

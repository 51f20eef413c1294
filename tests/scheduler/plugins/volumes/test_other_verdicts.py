"""The results of VolumeRestrictions, VolumeZone and NodeVolumeLimits: every reason, and its exceptions."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    GCEPersistentDiskVolumeSource,
    ISCSIVolumeSource,
    PortworxVolumeSource,
    RBDVolumeSource,
    Volume,
)
from koordinator.scheduler.engine.framework import PluginError
from tests.scheduler.plugins.volumes.storage import (
    DRIVER,
    Storage,
    attachment,
    claim,
    csi,
    csi_node,
    node,
    pod,
    storage_class,
    volume,
)
from tests.scheduler.simulating import simulating

NO_DISK = ["node(s) had no available disk"]
IN_USE = [
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
]
NO_ZONE = ["node(s) had no available volume zone"]
TOO_MANY = ["node(s) exceed max volume count"]
EBS = "ebs.csi.aws.com"


# VolumeRestrictions.


def gce(name: str = "x", *, read_only: bool = False) -> Volume:
    return Volume(name="d", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name=name, read_only=read_only))


def aws(volume_id: str = "vol-1", *, read_only: bool = False) -> Volume:
    source = AWSElasticBlockStoreVolumeSource(volume_id=volume_id, read_only=read_only)
    return Volume(name="d", aws_elastic_block_store=source)


def iscsi(iqn: str = "x", *, read_only: bool = False) -> Volume:
    return Volume(name="d", iscsi=ISCSIVolumeSource(iqn=iqn, read_only=read_only))


def rbd(image: str = "x", pool: str = "rbd", monitors: tuple[str, ...] = ("m1", "m2"), **changes: Any) -> Volume:
    source = RBDVolumeSource(image=image, pool=pool, monitors=list(monitors), read_only=changes.get("read_only", False))
    return Volume(name="d", rbd=source)


DISKS = {
    "gce": (gce(), gce(), NO_DISK),
    "gce, one reads": (gce(), gce(read_only=True), NO_DISK),
    "gce, both read": (gce(read_only=True), gce(read_only=True), []),
    "other gce": (gce(), gce("y"), []),
    "aws, both read": (aws(read_only=True), aws(read_only=True), NO_DISK),
    "other aws": (aws(), aws("vol-2"), []),
    "iscsi": (iscsi(), iscsi(), NO_DISK),
    "iscsi, both read": (iscsi(read_only=True), iscsi(read_only=True), []),
    "other iscsi": (iscsi(), iscsi("y"), []),
    "rbd": (rbd(), rbd(monitors=("m2", "m3")), NO_DISK),
    "rbd, both read": (rbd(read_only=True), rbd(read_only=True), []),
    "rbd of another cluster": (rbd(), rbd(monitors=("m3",)), []),
    "rbd of another pool": (rbd(), rbd(pool="other"), []),
    "other rbd": (rbd(), rbd("y"), []),
    "two kinds": (gce(), iscsi(), []),
}


@pytest.mark.parametrize(("mine", "theirs", "expected"), DISKS.values(), ids=DISKS)
def test_disk(mine: Volume, theirs: Volume, expected: list[str]) -> None:
    storage = Storage(node("a"), node("b"), pod("other", volumes=[theirs], on="a"))
    assert storage.texts("VolumeRestrictions", pod("p", volumes=[mine])) == {"a": expected, "b": []}


def test_disk_is_free_when_its_pod_has_gone() -> None:
    storage = Storage(node("a"), pod("other", volumes=[gce()], on="a"))
    storage.remove(pod("other"))
    assert storage.texts("VolumeRestrictions", pod("p", volumes=[gce()])) == {"a": []}


def exclusive() -> Storage:
    return Storage(node("a"), node("b"), claim("c", "v", modes=["ReadWriteOncePod"]), volume("v", to="c"))


def test_claim_for_one_pod_in_use() -> None:
    storage = exclusive()
    storage.add(pod("other", "c", on="a"))
    found = storage.filter_results("VolumeRestrictions", pod("p", "c"))
    assert found == {"a": [(IN_USE[0], False)], "b": [(IN_USE[0], False)]}


def test_claim_for_one_pod_is_free_when_the_pod_has_gone() -> None:
    storage = exclusive()
    storage.add(pod("other", "c", on="a"))
    storage.remove(pod("other"))
    assert storage.texts("VolumeRestrictions", pod("p", "c")) == {"a": [], "b": []}


def test_claim_for_one_pod_is_free_when_its_node_has_gone() -> None:
    storage = exclusive()
    storage.add(pod("other", "c", on="a"))
    storage.remove(node("a"))
    assert storage.texts("VolumeRestrictions", pod("p", "c")) == {"b": []}


def test_claim_for_many_pods_in_use() -> None:
    storage = Storage(node("a"), claim("c", "v"), volume("v", to="c"), pod("other", "c", on="a"))
    assert storage.texts("VolumeRestrictions", pod("p", "c")) == {"a": []}


def test_evicting_the_user_of_a_claim_helps_on_its_node() -> None:
    storage = exclusive()
    storage.add(pod("other", "c", on="a"))
    plugin, info = storage.plugins["VolumeRestrictions"], storage.info(pod("p", "c"))
    state = plugin.pre_filter(info).state
    other = storage.state.placed("uid-other")
    assert other is not None
    with simulating(storage.state, storage.row("a"), [other.pod], []):
        assert plugin.filter_one(info, state, storage.row("a")) == 0
    assert plugin.filter_one(info, state, storage.row("a")) != 0


def test_restrictions_need_the_claim() -> None:
    found = Storage(node("a")).filter_results("VolumeRestrictions", pod("p", "c"))
    assert found == [('persistentvolumeclaim "c" not found', True)]


# VolumeZone.

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
ZONES: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "same zone": ({ZONE: "z1"}, {ZONE: "z1"}, []),
    "other zone": ({ZONE: "z1"}, {ZONE: "z2"}, NO_ZONE),
    "one of several": ({ZONE: "z1__z2"}, {ZONE: "z2"}, []),
    "none of several": ({ZONE: "z1__z2"}, {ZONE: "z3"}, NO_ZONE),
    "blanks around": ({ZONE: "z1 __ z2"}, {ZONE: "z2"}, []),
    "unreadable": ({ZONE: "z1__"}, {ZONE: "z3"}, []),
    "region": ({REGION: "r1"}, {REGION: "r2"}, NO_ZONE),
    "zone and region": ({ZONE: "z1", REGION: "r1"}, {ZONE: "z1", REGION: "r2"}, NO_ZONE),
    "beta label of both": ({BETA_ZONE: "z1"}, {BETA_ZONE: "z1", ZONE: "z2"}, []),
    "beta label of the volume": ({BETA_ZONE: "z1"}, {ZONE: "z1"}, []),
    "beta region of the volume": ({BETA_REGION: "r1"}, {REGION: "r2"}, NO_ZONE),
    "beta label of the node": ({ZONE: "z1"}, {BETA_ZONE: "z1"}, NO_ZONE),
    "node with a region alone": ({ZONE: "z1"}, {REGION: "r1"}, NO_ZONE),
    "node without labels": ({ZONE: "z1"}, {}, []),
    "volume without labels": ({}, {ZONE: "z1"}, []),
}


@pytest.mark.parametrize(("of_volume", "of_node", "expected"), ZONES.values(), ids=ZONES)
def test_zone(of_volume: dict[str, str], of_node: dict[str, str], expected: list[str]) -> None:
    storage = Storage(node("a", **of_node), claim("c", "v"), volume("v", to="c", labels=of_volume))
    assert storage.texts("VolumeZone", pod("p", "c")) == {"a": expected}


ZONE_OBSTACLES = {
    "no claim": ((), 'persistentvolumeclaim "c" not found'),
    "no volume": ((claim("c", "v"),), 'persistentvolume "v" not found'),
    "no class name": ((claim("c", of=None),), "PersistentVolumeClaim had no pv name and storageClass name"),
    "no class": ((claim("c"),), 'storageclass.storage.k8s.io "wait" not found'),
    "no mode": ((claim("c"), storage_class("wait", None)), 'VolumeBindingMode not set for StorageClass "wait"'),
    "immediate": ((claim("c"), storage_class("wait", "Immediate")), "PersistentVolume had no name"),
}


@pytest.mark.parametrize(("objects", "text"), ZONE_OBSTACLES.values(), ids=ZONE_OBSTACLES)
def test_zone_obstacle(objects: tuple[Any, ...], text: str) -> None:
    assert Storage(node("a"), *objects).filter_results("VolumeZone", pod("p", "c")) == [(text, True)]


def test_claim_without_a_name() -> None:
    assert Storage(node("a")).texts("VolumeZone", pod("p", "")) == "PersistentVolumeClaim had no name"


def test_claim_that_waits_has_no_zone() -> None:
    storage = Storage(node("a", zone="z1"), claim("c"), storage_class("wait"))
    assert storage.texts("VolumeZone", pod("p", "c")) == {"a": []}


# NodeVolumeLimits.


def limited(count: int | None = 2, *, driver: str = DRIVER, migrated: str = "") -> Storage:
    """Node ``a`` with a limit, node ``b`` without."""
    storage = Storage(node("a"), node("b"), storage_class("wait"), csi_node("a", {driver: count}, migrated))
    storage.add(csi_node("b"))
    return storage


def bound(storage: Storage, *names: str, **changes: Any) -> None:
    for name in names:
        source = changes or {"csi": csi(f"handle-{name}")}
        storage.add(claim(name, f"v-{name}"), volume(f"v-{name}", to=name, **source))


def limit_texts(storage: Storage, *claims: str, **volumes: Any) -> object:
    return storage.texts("NodeVolumeLimits", pod("p", *claims, **volumes))


def test_no_more_volumes_than_the_driver_attaches() -> None:
    storage = limited()
    bound(storage, "c1", "c2", "c3")
    storage.add(pod("p1", "c1", on="a"))
    assert limit_texts(storage, "c2") == {"a": [], "b": []}
    storage.add(pod("p2", "c2", on="a"))
    assert storage.filter_results("NodeVolumeLimits", pod("p", "c3")) == {"a": [(TOO_MANY[0], False)], "b": []}


def test_volume_that_is_there_already_is_not_counted_twice() -> None:
    storage = limited(1)
    bound(storage, "c")
    storage.add(pod("p1", "c", on="a"))
    assert limit_texts(storage, "c") == {"a": [], "b": []}


def test_driver_without_a_limit() -> None:
    storage = limited(None)
    bound(storage, "c")
    assert limit_texts(storage, "c") == {"a": [], "b": []}


def test_limit_of_zero() -> None:
    storage = limited(0)
    bound(storage, "c")
    assert limit_texts(storage, "c") == {"a": TOO_MANY, "b": []}


def test_volumes_of_other_drivers_do_not_count() -> None:
    storage = limited(1)
    bound(storage, "c1", csi=csi("h", "other.example.com"))
    bound(storage, "c2")
    storage.add(pod("p1", "c1", on="a"))
    assert limit_texts(storage, "c2") == {"a": [], "b": []}


def test_volume_to_be_made_counts_by_its_class() -> None:
    storage = limited(1)
    storage.add(claim("c1"), claim("c2"))
    assert limit_texts(storage, "c1") == {"a": [], "b": []}
    assert limit_texts(storage, "c1", "c2") == {"a": TOO_MANY, "b": []}


def test_attached_volume_that_no_pod_uses_counts() -> None:
    storage = limited(1)
    bound(storage, "c1", "c2")
    storage.add(attachment("x", "a", "v-c1"))
    assert limit_texts(storage, "c2") == {"a": TOO_MANY, "b": []}
    storage.remove(attachment("x", "a", "v-c1"))
    assert limit_texts(storage, "c2") == {"a": [], "b": []}


def test_attached_volume_of_a_pod_counts_once() -> None:
    storage = limited(2)
    bound(storage, "c1", "c2")
    storage.add(attachment("x", "a", "v-c1"), pod("p1", "c1", on="a"))
    assert limit_texts(storage, "c2") == {"a": [], "b": []}


def test_attachment_that_says_too_little_does_not_count() -> None:
    storage = limited(1)
    bound(storage, "c")
    storage.add(attachment("x", "a", "gone"), attachment("y", "a", "v-c", attacher=""))
    assert limit_texts(storage, "c") == {"a": [], "b": []}


def test_migrated_volumes_count_for_their_driver() -> None:
    storage = limited(1, driver=EBS)
    disk = AWSElasticBlockStoreVolumeSource(volume_id="aws://z1/vol-1")
    bound(storage, "c1", aws=disk)
    storage.add(pod("p1", "c1", on="a"))
    assert limit_texts(storage, volumes=[aws("vol-2")]) == {"a": TOO_MANY, "b": []}


def test_same_migrated_disk_named_in_two_ways() -> None:
    storage = limited(1, driver=EBS)
    bound(storage, "c1", aws=AWSElasticBlockStoreVolumeSource(volume_id="aws://z1/vol-1"))
    storage.add(pod("p1", volumes=[aws("vol-1")], on="a"))
    assert limit_texts(storage, "c1") == {"a": [], "b": []}


def test_class_of_a_migrated_plugin() -> None:
    storage = limited(0, driver=EBS)
    storage.add(storage_class("wait", provisioner="kubernetes.io/aws-ebs"), claim("c"))
    assert limit_texts(storage, "c") == {"a": TOO_MANY, "b": []}


def test_plugin_that_is_never_counted() -> None:
    storage = limited(0, driver="csi.vsphere.vmware.com")
    storage.add(storage_class("wait", provisioner="kubernetes.io/vsphere-volume"), claim("c"))
    assert limit_texts(storage, "c") == {"a": [], "b": []}


@pytest.mark.parametrize(("migrated", "expected"), [("", []), ("kubernetes.io/portworx-volume", TOO_MANY)])
def test_portworx_volumes_count_where_the_node_says_so(migrated: str, expected: list[str]) -> None:
    storage = limited(0, driver="pxd.portworx.com", migrated=migrated)
    bound(storage, "c", portworx=PortworxVolumeSource(volume_id="x"))
    assert limit_texts(storage, "c") == {"a": expected, "b": []}


def test_limits_need_the_claim() -> None:
    missing = 'looking up PVC default/c: persistentvolumeclaim "c" not found'
    found = limited().filter_results("NodeVolumeLimits", pod("p", "c"))
    assert found == {"a": [(missing, True)], "b": [(missing, True)]}


def test_somebody_elses_ephemeral_claim_ends_the_attempt() -> None:
    storage = limited()
    storage.add(claim("p-e", owner="other"))
    with pytest.raises(PluginError, match="pod is not owner"):
        limit_texts(storage, ephemeral=["e"])


def test_disk_that_cannot_be_migrated_ends_the_attempt() -> None:
    disk = Volume(name="d", azure_disk=AzureDiskVolumeSource(disk_uri="u", kind="Shared"))
    with pytest.raises(PluginError, match=r"converting volume\(d\) from inline to csi: kind\(Shared\)"):
        limit_texts(limited(), volumes=[disk])


def test_pod_without_volumes_is_not_limited() -> None:
    assert limit_texts(limited(0)) == {"a": [], "b": []}


def test_volume_bound_later_counts_by_its_own_handle() -> None:
    storage = limited(1)
    storage.add(claim("c1"), pod("p1", "c1", on="a"), claim("c2", "v"), volume("v", to="c2", csi=csi("h")))
    assert limit_texts(storage, "c2") == {"a": TOO_MANY, "b": []}
    storage.add(claim("c1", "v"))
    assert limit_texts(storage, "c2") == {"a": [], "b": []}

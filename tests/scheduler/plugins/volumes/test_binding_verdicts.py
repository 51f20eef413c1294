"""VolumeBinding's results: every reason, and what must be there for a node to pass."""

from __future__ import annotations

import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from koordinator.api.pod import Volume as PodVolume
from koordinator.api.volume import (
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
)
from koordinator.scheduler.engine.framework import PluginError
from tests.scheduler.plugins.volumes.storage import (
    DRIVER,
    Storage,
    capacity,
    changed,
    claim,
    csi_node,
    driver,
    node,
    pod,
    selector,
    storage_class,
    volume,
)

WRONG_NODE = ["node(s) didn't match PersistentVolume's node affinity"]
NOTHING = ["node(s) didn't find available persistent volumes to bind"]
NO_CAPACITY = ["node(s) did not have enough free storage"]
MISSING = ["node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"]
STATIC = storage_class("wait", provisioner="kubernetes.io/no-provisioner")
NODES = (node("a", zone="z1"), node("b", zone="z2"))


def filter_results(storage: Storage, *claims: str) -> object:
    return storage.texts("VolumeBinding", pod("p", *claims))


# What stands in the way wherever the pod may go.

OBSTACLES: dict[str, tuple[list[PersistentVolumeClaim], str]] = {
    "missing": ([], 'persistentvolumeclaim "c" not found'),
    "lost": ([claim("c", "v", phase="Lost")], 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
    "being deleted": ([claim("c", deleting=True)], 'persistentvolumeclaim "c" is being deleted'),
    "immediate": ([claim("c", of="now")], "pod has unbound immediate PersistentVolumeClaims"),
    "no class": ([claim("c", of=None)], "pod has unbound immediate PersistentVolumeClaims"),
    "unknown class": ([claim("c", of="other")], "pod has unbound immediate PersistentVolumeClaims"),
    "binding under way": ([claim("c", "v", bound=False)], "pod has unbound immediate PersistentVolumeClaims"),
}


@pytest.mark.parametrize(("claims", "text"), OBSTACLES.values(), ids=OBSTACLES)
def test_obstacle(claims: list[PersistentVolumeClaim], text: str) -> None:
    storage = Storage(*NODES, storage_class("wait"), storage_class("now", "Immediate"), *claims)
    assert storage.filter_results("VolumeBinding", pod("p", "c")) == [(text, True)]


def test_class_without_mode_ends_the_attempt() -> None:
    storage = Storage(*NODES, storage_class("wait", None), claim("c"))
    with pytest.raises(PluginError, match='VolumeBindingMode not set for StorageClass "wait"'):
        filter_results(storage, "c")


def test_pod_without_claims_is_left_alone() -> None:
    storage = Storage(*NODES)
    each = storage.info(pod("p", volumes=[PodVolume(name="config")]))
    assert storage.binding.context_key(each) is None
    assert storage.binding.pre_filter(each).skip


# Generic ephemeral volumes.


def test_ephemeral_claim_is_awaited() -> None:
    found = Storage(*NODES).filter_results("VolumeBinding", pod("p", ephemeral=["scratch"]))
    text = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert found == [(text, True)]


def test_ephemeral_claim_of_another_pod() -> None:
    storage = Storage(*NODES, STATIC, claim("p-scratch", owner="other"))
    found = storage.filter_results("VolumeBinding", pod("p", ephemeral=["scratch"]))
    assert found == [("PVC default/p-scratch was not created for pod default/p (pod is not owner)", True)]


def test_ephemeral_claim_of_its_own() -> None:
    storage = Storage(*NODES, claim("p-scratch", "v", owner="p"), volume("v", to="p-scratch", on="a"))
    found = storage.texts("VolumeBinding", pod("p", ephemeral=["scratch"]))
    assert found == {"a": [], "b": WRONG_NODE}


# Bound claims.


def test_bound_volume_decides_about_the_node() -> None:
    storage = Storage(*NODES, claim("c", "v"), volume("v", to="c", zone="z2"))
    assert filter_results(storage, "c") == {"a": WRONG_NODE, "b": []}


def test_bound_volume_without_affinity_is_good_everywhere() -> None:
    storage = Storage(*NODES, claim("c", "v"), volume("v", to="c"))
    assert filter_results(storage, "c") == {"a": [], "b": []}


def test_bound_volume_that_is_gone() -> None:
    assert filter_results(Storage(*NODES, claim("c", "v")), "c") == {"a": MISSING, "b": MISSING}


def test_first_bound_volume_out_of_reach_decides() -> None:
    storage = Storage(*NODES, claim("c1", "v1"), claim("c2", "v2"), volume("v1", to="c1", on="a"))
    assert filter_results(storage, "c1", "c2") == {"a": MISSING, "b": WRONG_NODE}


def test_fields_of_a_volumes_affinity_are_not_queried() -> None:
    named = NodeSelectorRequirement(key="metadata.name", operator="In", values=["b"])
    affinity = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[named])])
    storage = Storage(*NODES, claim("c", "v"), volume("v", to="c", affinity=affinity))
    assert filter_results(storage, "c") == {"a": [], "b": []}


def test_affinity_without_terms_matches_no_node() -> None:
    storage = Storage(*NODES, claim("c", "v"), volume("v", to="c", affinity=NodeSelector()))
    assert filter_results(storage, "c") == {"a": WRONG_NODE, "b": WRONG_NODE}


def test_migrated_volume_is_looked_for_by_the_drivers_topology() -> None:
    nodes = (node("a", **{"topology.ebs.csi.aws.com/zone": "z1"}), node("b", zone="z1"))
    disk = volume("v", to="c", zone="z1", aws=AWSElasticBlockStoreVolumeSource(volume_id="vol-1"))
    storage = Storage(*nodes, claim("c", "v"), disk)
    assert filter_results(storage, "c") == {"a": WRONG_NODE, "b": []}
    storage.add(csi_node("a", migrated="kubernetes.io/aws-ebs"), csi_node("b", migrated="kubernetes.io/aws-ebs"))
    assert filter_results(storage, "c") == {"a": [], "b": WRONG_NODE}


def test_volume_that_cannot_be_migrated_ends_the_attempt() -> None:
    disk = volume("v", to="c", aws=AWSElasticBlockStoreVolumeSource(volume_id="aws://z1/disk"))
    with pytest.raises(PluginError, match="could not translate pv: Invalid format for AWS volume"):
        filter_results(Storage(*NODES, claim("c", "v"), disk), "c")


# Volumes that exist already.


def test_free_volume_ties_the_pod_to_its_host() -> None:
    storage = Storage(*NODES, STATIC, claim("c"), volume("v", on="b"))
    assert filter_results(storage, "c") == {"a": NOTHING, "b": []}


def test_volume_kept_for_the_claim_is_the_only_one() -> None:
    storage = Storage(*NODES, STATIC, claim("c"), volume("mine", to="c", on="a", uid=""), volume("free", on="b"))
    assert filter_results(storage, "c") == {"a": [], "b": NOTHING}


def test_volume_kept_for_an_earlier_claim_of_the_name() -> None:
    storage = Storage(*NODES, STATIC, claim("c"), volume("old", to="c", uid="uid-before", on="a"))
    assert filter_results(storage, "c") == {"a": NOTHING, "b": NOTHING}


UNFIT: dict[str, tuple[PersistentVolumeClaim, PersistentVolume]] = {
    "too small": (claim("c", size="2Gi"), volume("v", "1Gi")),
    "other class": (claim("c"), volume("v", of="other")),
    "raw block": (claim("c", mode="Block"), volume("v")),
    "file system": (claim("c"), volume("v", mode="Block")),
    "other modes": (claim("c", modes=["ReadWriteOnce", "ReadOnlyMany"]), volume("v")),
    "attributes": (claim("c", attributes="gold"), volume("v", attributes="silver")),
    "not available": (claim("c"), volume("v", phase="Pending")),
    "released": (claim("c"), volume("v", phase="Released", to="other")),
    "being deleted": (claim("c"), volume("v", deleting=True)),
    "labels": (claim("c", selector=LabelSelector(match_labels={"tier": "fast"})), volume("v", labels={"tier": "slow"})),
    "another zone": (claim("c"), volume("v", zone="z3")),
}


@pytest.mark.parametrize(("wanted", "there"), UNFIT.values(), ids=UNFIT)
def test_volume_that_the_claim_cannot_have(wanted: PersistentVolumeClaim, there: PersistentVolume) -> None:
    storage = Storage(*NODES, STATIC, wanted, there)
    assert filter_results(storage, "c") == {"a": NOTHING, "b": NOTHING}


FIT: dict[str, tuple[PersistentVolumeClaim, PersistentVolume]] = {
    "larger": (claim("c"), volume("v", "2Gi")),
    "more modes": (claim("c"), volume("v", modes=["ReadWriteOnce", "ReadWriteMany"])),
    "file system by name": (claim("c"), volume("v", mode="Filesystem")),
    "labels": (claim("c", selector=LabelSelector(match_labels={"tier": "fast"})), volume("v", labels={"tier": "fast"})),
    "class by annotation": (
        claim("c", annotations={"volume.beta.kubernetes.io/storage-class": "wait"}, of="other"),
        volume("v"),
    ),
    "nothing requested": (claim("c", size=None), volume("v")),
}


@pytest.mark.parametrize(("wanted", "there"), FIT.values(), ids=FIT)
def test_volume_that_the_claim_can_have(wanted: PersistentVolumeClaim, there: PersistentVolume) -> None:
    storage = Storage(*NODES, STATIC, wanted, there)
    assert filter_results(storage, "c") == {"a": [], "b": []}


def test_selector_that_cannot_be_read_ends_the_attempt() -> None:
    broken = LabelSelector(match_expressions=[LabelSelectorRequirement(key="tier", operator="Near")])
    storage = Storage(*NODES, STATIC, claim("c", selector=broken), volume("v"))
    with pytest.raises(PluginError, match="error creating internal label selector for claim: default/c"):
        filter_results(storage, "c")


def test_two_claims_need_two_volumes() -> None:
    storage = Storage(*NODES, STATIC, claim("c1"), claim("c2"), volume("v1", on="a"), volume("v2", on="a"))
    storage.add(volume("v3", on="b"))
    assert filter_results(storage, "c1", "c2") == {"a": [], "b": NOTHING}


def test_small_claims_leave_large_volumes_to_large_claims() -> None:
    storage = Storage(node("a"), STATIC, claim("large", size="2Gi"), claim("small", size="1Gi"))
    storage.add(volume("v1", "1Gi", on="a"), volume("v2", "2Gi"))
    assert filter_results(storage, "large", "small") == {"a": []}


# Volumes that are made on demand.


def test_volume_can_be_made_everywhere() -> None:
    assert filter_results(Storage(*NODES, storage_class("wait"), claim("c")), "c") == {"a": [], "b": []}


@pytest.mark.parametrize("provisioner", ["", "kubernetes.io/no-provisioner"])
def test_nobody_makes_volumes_of_the_class(provisioner: str) -> None:
    storage = Storage(*NODES, storage_class("wait", provisioner=provisioner), claim("c"))
    assert filter_results(storage, "c") == {"a": NOTHING, "b": NOTHING}


def topology(key: str, *values: str) -> TopologySelectorTerm:
    return TopologySelectorTerm(
        match_label_expressions=[TopologySelectorLabelRequirement(key=key, values=list(values))]
    )


ALLOWED = {
    "one zone": ([topology("topology.kubernetes.io/zone", "z1")], {"a": [], "b": NOTHING}),
    "either": ([topology("topology.kubernetes.io/zone", "z2"), topology("x", "y")], {"a": NOTHING, "b": []}),
    "empty term": ([TopologySelectorTerm()], {"a": NOTHING, "b": NOTHING}),
    "no values": ([topology("topology.kubernetes.io/zone")], {"a": NOTHING, "b": NOTHING}),
}


@pytest.mark.parametrize(("allowed", "expected"), ALLOWED.values(), ids=ALLOWED)
def test_topologies_that_the_class_allows(allowed: list[TopologySelectorTerm], expected: dict[str, list[str]]) -> None:
    assert filter_results(Storage(*NODES, storage_class("wait", allowed=allowed), claim("c")), "c") == expected


def test_capacity_is_where_the_driver_says() -> None:
    storage = Storage(*NODES, storage_class("wait"), driver(), claim("c", size="5Gi"))
    storage.add(capacity("x", "a", "10Gi"), capacity("y", "b", "1Gi"))
    assert filter_results(storage, "c") == {"a": [], "b": NO_CAPACITY}


def test_largest_volume_counts_before_the_capacity() -> None:
    storage = Storage(*NODES, storage_class("wait"), driver(), claim("c", size="5Gi"))
    storage.add(capacity("x", "a", "10Gi", largest="1Gi"), capacity("y", "b", "1Gi", largest="5Gi"))
    assert filter_results(storage, "c") == {"a": NO_CAPACITY, "b": []}


def test_storage_out_of_reach_or_of_unknown_size_is_no_capacity() -> None:
    storage = Storage(*NODES, storage_class("wait"), driver(), claim("c"))
    storage.add(capacity("x", None, "10Gi"), capacity("y", "b", None))
    assert filter_results(storage, "c") == {"a": NO_CAPACITY, "b": NO_CAPACITY}


@pytest.mark.parametrize("counts_capacity", [None, False])
def test_driver_that_does_not_count_room(counts_capacity: bool | None) -> None:
    storage = Storage(*NODES, storage_class("wait"), driver(counts_capacity=counts_capacity), claim("c"))
    assert filter_results(storage, "c") == {"a": [], "b": []}


def test_capacity_follows_what_the_driver_says() -> None:
    storage = Storage(*NODES, storage_class("wait"), driver(), claim("c", size="5Gi"), capacity("x", "a", "1Gi"))
    before = storage.binding.context_key(storage.info(pod("p", "c")))
    storage.add(capacity("x", "a", "5Gi"))
    assert storage.binding.context_key(storage.info(pod("p", "c"))) != before
    assert filter_results(storage, "c") == {"a": [], "b": NO_CAPACITY}
    storage.remove(capacity("x", "a", "5Gi"))
    assert filter_results(storage, "c") == {"a": NO_CAPACITY, "b": NO_CAPACITY}


def test_claim_is_made_where_it_is_announced() -> None:
    announced = claim("c", annotations={"volume.kubernetes.io/selected-node": "b"})
    assert filter_results(Storage(*NODES, storage_class("wait"), announced), "c") == {"a": NOTHING, "b": []}


def test_claim_that_is_announced_is_not_given_a_volume_that_is_there() -> None:
    announced = claim("c", annotations={"volume.kubernetes.io/selected-node": "b"})
    assert filter_results(Storage(*NODES, STATIC, announced, volume("v")), "c") == {"a": NOTHING, "b": NOTHING}


def test_what_is_not_there_is_made() -> None:
    storage = Storage(*NODES, storage_class("wait"), driver(), claim("c1"), claim("c2"), volume("v", on="a"))
    storage.add(capacity("x", "a", "10Gi"))
    assert filter_results(storage, "c1", "c2") == {"a": [], "b": NO_CAPACITY}


def test_reasons_of_bound_and_unbound_claims_add_up() -> None:
    storage = Storage(*NODES, STATIC, claim("c1", "v1"), volume("v1", to="c1", on="b"), claim("c2"))
    assert filter_results(storage, "c1", "c2") == {"a": [*WRONG_NODE, *NOTHING], "b": NOTHING}


# Which pods are alike.


def test_pods_with_claims_that_are_alike_share_their_results() -> None:
    storage = Storage(*NODES, storage_class("wait"), claim("c1"), claim("c2"), claim("c3", size="3Gi"))
    keys = [storage.binding.context_key(storage.info(pod(f"p{n}", f"c{n}"))) for n in (1, 2, 3)]
    assert keys[0] == keys[1] != keys[2]


def test_pods_with_volumes_of_one_zone_share_their_results() -> None:
    storage = Storage(*NODES)
    for n in (1, 2, 3):
        source = CSIPersistentVolumeSource(driver=DRIVER, volume_handle=f"h{n}")
        zone = "z1" if n < 3 else "z2"
        storage.add(claim(f"c{n}", f"v{n}"), volume(f"v{n}", to=f"c{n}", zone=zone, csi=source))
    profile = storage.profile
    keys = [profile.class_key(storage.info(pod(f"p{n}", f"c{n}"))) for n in (1, 2, 3)]
    assert keys[0] == keys[1] != keys[2]


def test_response_follows_the_labels_of_a_node() -> None:
    storage = Storage(*NODES, claim("c", "v"), volume("v", to="c", affinity=selector("disk", "fast")))
    assert filter_results(storage, "c") == {"a": WRONG_NODE, "b": WRONG_NODE}
    storage.add(node("a", disk="fast"))
    assert filter_results(storage, "c") == {"a": [], "b": WRONG_NODE}
    storage.remove(node("a"))
    storage.add(node("d", disk="fast"))
    assert filter_results(storage, "c") == {"b": WRONG_NODE, "d": []}


def test_claim_that_changes_makes_the_pod_another() -> None:
    storage = Storage(*NODES, STATIC, claim("c"))
    info = storage.info(pod("p", "c"))
    before = storage.binding.context_key(info)
    storage.add(changed(claim("c", "v"), resource_version="2"), volume("v", to="c"))
    assert storage.binding.context_key(info) != before

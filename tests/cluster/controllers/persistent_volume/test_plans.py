"""What becomes of claims and of volumes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.meta import ObjectMeta
from koordinator.api.quantity import Quantity
from koordinator.api.volume import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    DEFAULT_CLASS,
    PROVISIONED_BY,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.cluster.controllers.persistent_volume.claim_plan import ClaimPlan, ClaimState, plan_claim
from koordinator.cluster.controllers.persistent_volume.matching import best_match
from koordinator.cluster.controllers.persistent_volume.protection import wanted_finalizers
from koordinator.cluster.controllers.persistent_volume.provisioning import (
    PROVISIONER,
    SIMULATED_CLASS,
    growth,
    new_volume,
    wants_volume,
)
from koordinator.cluster.controllers.persistent_volume.volume_plan import (
    Reclaim,
    VolumePlan,
    plan_reclaim,
    plan_volume,
)
from koordinator.model.default_storage_class import default_storage_class
from tests.cluster.controllers.objects import NOW

Document = dict[str, Any]
SIMULATED = convert(SIMULATED_CLASS, StorageClass)


def claim(size: str = "1Gi", *modes: str, phase: str = "Pending", **spec: Any) -> PersistentVolumeClaim:
    """``spec`` may have annotations beside its own fields."""
    annotations = dict.fromkeys(spec.pop("annotations", ()), "yes")
    document = {
        "metadata": {"name": "c", "namespace": "default", "uid": "c-uid", "annotations": annotations},
        "spec": {
            "accessModes": list(modes or ("ReadWriteOnce",)),
            "resources": {"requests": {"storage": size}},
            "storageClassName": "fast",
            **spec,
        },
        "status": {"phase": phase},
    }
    return convert(document, PersistentVolumeClaim)


def volume(
    name: str, size: str = "1Gi", *modes: str, phase: str = "Available", kept_for: str | None = None, **spec: Any
) -> PersistentVolume:
    """``kept_for``: the UID in its reference to the claim, which may be empty."""
    metadata = {"name": name, "annotations": spec.pop("annotations", {}), "labels": spec.pop("labels", {})}
    reference = {"namespace": "default", "name": "c", "uid": kept_for}
    document = {
        "metadata": metadata,
        "spec": {
            "accessModes": list(modes or ("ReadWriteOnce",)),
            "capacity": {"storage": size},
            "storageClassName": "fast",
            **({"claimRef": reference} if kept_for is not None else {}),
            **spec,
        },
        "status": {"phase": phase},
    }
    return convert(document, PersistentVolume)


@pytest.mark.parametrize(
    ("wanted", "volumes", "chosen"),
    [
        (claim(), [volume("big", "3Gi"), volume("small", "2Gi"), volume("tiny", "1M")], "small"),
        (claim(), [volume("other", storageClassName="slow")], None),
        (claim(), [volume("pending", phase="Pending"), volume("released", phase="Released")], None),
        (claim(volumeMode="Block"), [volume("files")], None),
        (claim("1Gi", "ReadWriteMany"), [volume("once")], None),
        (claim(), [volume("both", "1Gi", "ReadWriteOnce", "ReadOnlyMany"), volume("once", "9Gi")], "once"),
        (claim(), [volume("small"), volume("mine", "5Gi", kept_for="")], "mine"),
        (claim(), [volume("others", kept_for="another-uid")], None),
        (claim("2Gi"), [volume("mine", kept_for="")], None),
        (claim(), [volume("mine", kept_for="", storageClassName="slow", phase="Pending")], "mine"),
        (claim(selector={"matchLabels": {"a": "b"}}), [volume("x"), volume("y", labels={"a": "b"})], "y"),
    ],
)
def test_a_claim_gets_the_volume_that_fits_best(
    wanted: PersistentVolumeClaim, volumes: list[PersistentVolume], chosen: str | None
) -> None:
    found = best_match(wanted, volumes)
    assert (found.metadata.name if found is not None else None) == chosen


def test_a_claim_that_waits_for_a_pod_gets_only_a_volume_that_is_kept_for_it() -> None:
    free, kept = volume("free"), volume("kept", "5Gi", kept_for="")
    assert best_match(claim(), [free], only_kept=True) is None
    assert best_match(claim(), [free, kept], only_kept=True) is kept


_SIZES = st.sampled_from([1, 2, 3, 4])
_MODES = st.sets(st.sampled_from(["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]), min_size=1)


@given(_SIZES, _MODES, st.lists(st.tuples(_SIZES, _MODES, st.sampled_from([None, "", "c-uid", "x"]))))
def test_no_other_volume_fits_better(
    size: int, modes: set[str], given_volumes: list[tuple[int, set[str], str | None]]
) -> None:
    wanted = claim(f"{size}Gi", *sorted(modes))
    volumes = [
        volume(str(index), f"{has}Gi", *sorted(offers), kept_for=kept)
        for index, (has, offers, kept) in enumerate(given_volumes)
    ]
    fitting = {
        index: (len(offers), kept is None, has, str(index))
        for index, (has, offers, kept) in enumerate(given_volumes)
        if has >= size and modes <= offers and kept != "x"
    }
    found = best_match(wanted, volumes)
    expected = min(fitting, key=lambda index: fitting[index], default=None)
    assert (None if found is None else found.metadata.name) == (None if expected is None else str(expected))


def state(wanted: PersistentVolumeClaim, *candidates: PersistentVolume, **more: Any) -> ClaimState:
    return ClaimState(**{"claim": wanted, "candidates": candidates, "named": None, "storage_class": None, **more})


def summary(plan: ClaimPlan) -> tuple[str, str, str]:
    """The volume, the phase, and the reason of the event."""
    return (
        plan.bind.metadata.name if plan.bind is not None else "",
        plan.phase,
        plan.notice.reason if plan.notice is not None else "",
    )


_BOUND = claim(volumeName="v", annotations=[BIND_COMPLETED])
_NO_CLASS = claim(storageClassName="")


@pytest.mark.parametrize(
    ("given_state", "wanted"),
    [
        (state(claim(), volume("v")), ("v", "", "")),
        (state(_NO_CLASS), ("", "Pending", "FailedBinding")),
        (state(claim()), ("", "Pending", "ProvisioningFailed")),
        (state(claim(), storage_class=StorageClass(provisioner="a.com/b")), ("", "Pending", "ExternalProvisioning")),
        (
            state(claim(), storage_class=StorageClass(provisioner="kubernetes.io/no-provisioner")),
            ("", "Pending", "ProvisioningFailed"),
        ),
        (state(claim(), volume("v"), storage_class=SIMULATED), ("", "Pending", "WaitForFirstConsumer")),
        (state(claim(), storage_class=SIMULATED, waiting_pods=["p"]), ("", "Pending", "WaitForPodScheduled")),
        (
            state(claim(annotations=[SELECTED_NODE]), storage_class=SIMULATED),
            ("", "Pending", "ExternalProvisioning"),
        ),
        (state(claim(volumeName="v")), ("", "Pending", "")),
        (state(claim(volumeName="v"), named=volume("v")), ("v", "", "")),
        (state(claim("2Gi", volumeName="v"), named=volume("v")), ("", "Pending", "VolumeMismatch")),
        (state(claim(volumeName="v"), named=volume("v", kept_for="c-uid")), ("v", "", "")),
        (state(claim(volumeName="v"), named=volume("v", kept_for="x")), ("", "Pending", "FailedBinding")),
        (
            state(claim(volumeName="v", annotations=[BOUND_BY_CONTROLLER]), named=volume("v", kept_for="x")),
            ("", "", ""),
        ),
        (state(_BOUND, named=volume("v")), ("v", "", "")),
        (state(_BOUND, named=volume("v", kept_for="c-uid")), ("v", "", "")),
        (state(_BOUND, named=volume("v", kept_for="x")), ("", "Lost", "ClaimMisbound")),
        (state(_BOUND), ("", "Lost", "ClaimLost")),
        (state(claim(annotations=[BIND_COMPLETED])), ("", "Lost", "ClaimLost")),
    ],
)
def test_what_becomes_of_a_claim(given_state: ClaimState, wanted: tuple[str, str, str]) -> None:
    assert summary(plan_claim(given_state)) == wanted


def test_only_a_claim_that_names_no_class_gets_the_default() -> None:
    without = claim(storageClassName=None)
    assert plan_claim(state(without, default_class="d")).storage_class == "d"
    assert plan_claim(state(_NO_CLASS, default_class="d")).storage_class == ""


def test_the_default_class_is_the_newest_and_then_the_first_by_name() -> None:
    marked = {DEFAULT_CLASS: "true"}
    classes = [("2026-01-01", "old", marked), ("2026-02-01", "b", marked), ("2026-02-01", "a", marked)]
    assert default_storage_class([*classes, ("2026-03-01", "unmarked", {DEFAULT_CLASS: "false"})]) == "a"
    assert default_storage_class([]) == ""


_OURS: dict[str, Any] = {"annotations": {PROVISIONED_BY: PROVISIONER}, "persistentVolumeReclaimPolicy": "Delete"}


@pytest.mark.parametrize(
    ("given_volume", "its_claim", "wanted"),
    [
        (volume("v", phase="Pending"), None, VolumePlan(phase="Available")),
        (volume("v", kept_for=""), None, VolumePlan(phase="Available")),
        (volume("v", kept_for="c-uid"), None, VolumePlan(phase="Released", reclaim=True)),
        (volume("v", kept_for="c-uid", phase="Failed"), None, VolumePlan(reclaim=True)),
        (volume("v", kept_for="c-uid"), claim(), VolumePlan()),
        (volume("v", kept_for="c-uid"), claim(volumeName="v"), VolumePlan(phase="Bound")),
        (volume("v", kept_for="c-uid"), claim(volumeName="w"), VolumePlan(unbind=True, phase="Available")),
        (volume("v", kept_for="c-uid", **_OURS), claim(volumeName="w"), VolumePlan(phase="Released", reclaim=True)),
    ],
)
def test_what_becomes_of_a_volume(
    given_volume: PersistentVolume, its_claim: PersistentVolumeClaim | None, wanted: VolumePlan
) -> None:
    assert plan_volume(given_volume, its_claim) == wanted


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"persistentVolumeReclaimPolicy": "Retain"}, ""),
        ({"persistentVolumeReclaimPolicy": "Recycle"}, "VolumeFailedRecycle"),
        ({"persistentVolumeReclaimPolicy": "Delete"}, "VolumeFailedDelete"),
        ({"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/data"}}, "VolumeFailedDelete"),
        ({"persistentVolumeReclaimPolicy": "Other"}, "VolumeUnknownReclaimPolicy"),
        (_OURS, ""),
    ],
)
def test_how_a_released_volume_is_reclaimed(spec: Document, reason: str) -> None:
    reclaim = plan_reclaim(volume("v", **spec))
    assert not reclaim.delete
    assert (reclaim.failure.reason if reclaim.failure is not None else "") == reason


def test_a_temporary_directory_is_deleted() -> None:
    spec: Document = {"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/tmp/x"}}
    assert plan_reclaim(volume("v", **spec)) == Reclaim(delete=True)


@pytest.mark.parametrize(
    ("wanted", "storage_class", "wants"),
    [
        (claim(annotations=[SELECTED_NODE]), SIMULATED, True),
        (claim(), SIMULATED, False),
        (claim(), convert({**SIMULATED_CLASS, "volumeBindingMode": "Immediate"}, StorageClass), True),
        (claim(volumeName="v", annotations=[SELECTED_NODE]), SIMULATED, False),
        (claim(selector={}, annotations=[SELECTED_NODE]), SIMULATED, False),
        (claim(annotations=[SELECTED_NODE]), StorageClass(provisioner="example.com/other"), False),
        (claim(annotations=[SELECTED_NODE]), None, False),
    ],
)
def test_for_which_claims_the_simulated_provisioner_makes_a_volume(
    wanted: PersistentVolumeClaim, storage_class: StorageClass | None, wants: bool
) -> None:
    assert wants_volume(wanted, storage_class) is wants


def test_a_volume_is_made_for_its_claim_alone() -> None:
    made = convert(new_volume(claim("5Gi"), SIMULATED), PersistentVolume)
    assert best_match(claim("5Gi"), [made], only_kept=True) is made
    assert made.spec.csi is not None
    assert (made.spec.csi.driver, made.spec.persistent_volume_reclaim_policy) == (PROVISIONER, "Delete")


@pytest.mark.parametrize(
    ("requested", "has", "phase", "annotations", "size"),
    [
        ("3Gi", "1Gi", "Bound", _OURS["annotations"], "3Gi"),
        ("1Gi", "1Gi", "Bound", _OURS["annotations"], ""),
        ("3Gi", "1Gi", "Pending", _OURS["annotations"], ""),
        ("3Gi", "1Gi", "Bound", {}, ""),
    ],
)
def test_a_simulated_volume_grows_with_its_claim(
    requested: str, has: str, phase: str, annotations: dict[str, str], size: str
) -> None:
    bound = claim(requested, phase=phase)
    bound.status.capacity["storage"] = Quantity.parse(has)
    assert growth(bound, volume("v", has, annotations=annotations)) == size


@pytest.mark.parametrize(
    ("leaving", "finalizers", "used", "wanted"),
    [
        (False, [], False, ["f"]),
        (False, ["f"], False, None),
        (True, ["f", "other"], True, None),
        (True, ["f", "other"], False, ["other"]),
        (True, [], False, None),
    ],
)
def test_an_object_is_protected_until_nobody_uses_it(
    leaving: bool, finalizers: list[str], used: bool, wanted: list[str] | None
) -> None:
    metadata = ObjectMeta(finalizers=finalizers, deletion_timestamp=NOW if leaving else None)
    assert wanted_finalizers(PersistentVolumeClaim(metadata=metadata), "f", is_used=used) == wanted


def test_a_plan_says_what_pods_a_claim_waits_for() -> None:
    waiting = state(claim(), storage_class=SIMULATED, waiting_pods=["p", "q"])
    texts = [plan_claim(each).notice for each in (waiting, replace(waiting, waiting_pods=["p"]))]
    assert [text.note for text in texts if text is not None] == [
        "waiting for pods p,q to be scheduled",
        "waiting for pod p to be scheduled",
    ]

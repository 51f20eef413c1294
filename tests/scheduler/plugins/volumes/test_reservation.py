"""VolumeBinding from Reserve to the end of PreBind: what is assumed, written, awaited, and taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest

from koordinator.api.codec import convert, to_document
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.pod import AWSElasticBlockStoreVolumeSource
from koordinator.api.volume import BIND_COMPLETED, SELECTED_NODE, PersistentVolumeClaim
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.configuration.upstream_arguments import VolumeBindingArgs
from koordinator.scheduler.engine.binding_points import CycleState, PodChanges
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.volumes.binding import VolumeBinding
from tests.scheduler.plugins.volumes.storage import (
    Storage,
    changed,
    claim,
    csi_node,
    node,
    pod,
    storage_class,
    volume,
)

STATIC = storage_class("wait", provisioner="kubernetes.io/no-provisioner")
NOTHING = ["node(s) didn't find available persistent volumes to bind"]


class ConflictError(KoordinatorError):
    """What the API says when it has another version."""


class FakeWriter:
    """Applies patches to the objects of a Storage, as the API would, and plays ``events`` one by one while waiting."""

    def __init__(self, storage: Storage, *events: Callable[[], None]) -> None:
        self.storage = storage
        self.events = list(events)
        self.patches: list[tuple[str, Mapping[str, Any]]] = []
        self.seconds = 0.0
        self.shows_writes = True

    async def patch(
        self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> None:
        key = f"{namespace}/{name}" if namespace else name
        stored = self.storage.view.objects_of(kind)[key]
        if patch["metadata"]["resourceVersion"] != stored.metadata.resource_version:
            raise ConflictError(f"{kind.plural} {name!r}: the object has been modified")
        self.patches.append((name, patch))
        if self.shows_writes:
            self.storage.add(merged(stored, patch))

    async def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        objects: Callable[[], Iterable[tuple[Kind[Any], str]]] | None = None,
    ) -> bool:
        """Asks again only after events about ``objects``, as the real one does."""
        assert objects is not None
        self.seconds = seconds
        while not condition():
            wanted, before = {(kind.name, key) for kind, key in objects()}, self._seen()
            while not wanted & {key for key, obj in (before.items() ^ self._seen().items())}:
                if not self.events:
                    return False
                self.events.pop(0)()
        return True

    def now(self) -> datetime:
        raise AssertionError("volumes do not ask for the time")

    def _seen(self) -> dict[tuple[str, str], int]:
        """What the cluster state shows, by kind and key."""
        view = self.storage.view
        seen = {(kind, key): id(obj) for kind, objects in view.objects.items() for key, obj in objects.items()}
        seen |= {("Node", name): id(view.columns.nodes[row]) for name, row in view.columns.row_of.items()}
        return seen | {("Pod", pod.key): row for row, pods in view.pods_on.items() for pod in pods.values()}


def merged(stored: Object, patch: Mapping[str, Any]) -> Object:
    """The object after a merge patch, as its next version."""
    document = to_document(stored)
    document["metadata"].setdefault("annotations", {}).update(patch["metadata"].get("annotations", {}))
    if "spec" in patch:
        document["spec"]["claimRef"] = {**document["spec"].get("claimRef", {}), **patch["spec"]["claimRef"]}
    document["metadata"]["resourceVersion"] = str(int(stored.metadata.resource_version) + 1)
    return convert(document, type(stored))


class Attempt:
    """One pod on its way to node ``a``."""

    def __init__(self, storage: Storage, *claims: str, name: str = "p") -> None:
        self.storage = storage
        self.pod = storage.info(pod(name, *claims))
        self.state = CycleState(self.pod)
        self.node = storage.view.columns.reference(storage.row("a"))

    def reserve(self, name: str = "a") -> PodInfo:
        self.storage.state.assume(self.pod, name)
        self.node = self.storage.view.columns.reference(self.storage.row(name))
        self.storage.binding.reserve(self.state, self.pod, self.node)
        return self.pod

    def unreserve(self) -> None:
        self.storage.binding.unreserve(self.state, self.pod, self.node)
        self.storage.state.forget(self.pod.uid)

    def pre_binds(self) -> bool:
        return self.storage.binding.pre_binds(self.state, self.pod, self.node)

    def pre_bind(self, writer: FakeWriter) -> None:
        asyncio.run(self.storage.binding.pre_bind(self.state, self.pod, self.node, PodChanges(), writer))


def stored_claim(storage: Storage, name: str) -> PersistentVolumeClaim:
    found = storage.binding.index.claims.stored(f"default/{name}")
    assert found is not None
    return found


def next_version(obj: Any, **metadata: Any) -> Any:
    return changed(obj, resource_version=str(int(obj.metadata.resource_version) + 1), **metadata)


def bind(storage: Storage, name: str, to: str) -> Callable[[], None]:
    """The volume controller finishes with a claim."""

    def event() -> None:
        known = stored_claim(storage, name)
        annotations = {**known.metadata.annotations, BIND_COMPLETED: "yes"}
        spec = msgspec.structs.replace(known.spec, volume_name=to)
        storage.add(next_version(msgspec.structs.replace(known, spec=spec), annotations=annotations))

    return event


# Reserve and Unreserve.


def test_volume_is_given_once() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    Attempt(storage, "c1", name="p1").reserve()
    assert storage.texts("VolumeBinding", pod("p2", "c2")) == {"a": NOTHING}


def test_volume_that_another_pod_has_got_meanwhile_cannot_be_reserved() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    Attempt(storage, "c1", name="p1").reserve()
    with pytest.raises(PluginError, match="didn't find available persistent volumes"):
        Attempt(storage, "c2", name="p2").reserve()


def test_unreserve_gives_the_volume_back() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    attempt = Attempt(storage, "c1", name="p1")
    attempt.reserve()
    attempt.unreserve()
    assert storage.texts("VolumeBinding", pod("p2", "c2")) == {"a": []}


def test_unreserve_without_reserve() -> None:
    storage = Storage(node("a"))
    attempt = Attempt(storage, "c")
    storage.binding.unreserve(attempt.state, attempt.pod, attempt.node)


def test_smallest_volume_that_fits_is_taken() -> None:
    storage = Storage(node("a"), STATIC, claim("c", size="2Gi"))
    storage.add(volume("v1", "1Gi"), volume("v4", "4Gi"), volume("v3", "3Gi", on="a"), volume("v5", "3Gi"))
    Attempt(storage, "c").reserve()
    assert [name for name in ("v1", "v3", "v4", "v5") if storage.binding.index.volumes.is_assumed(name)] == ["v3"]


def test_claim_to_be_made_is_announced_for_other_pods_that_use_it() -> None:
    storage = Storage(node("a"), node("b"), storage_class("wait"), claim("c"))
    Attempt(storage, "c", name="p1").reserve()
    assert storage.texts("VolumeBinding", pod("p2", "c")) == {"a": [], "b": NOTHING}


def test_what_the_api_says_wins_over_what_is_assumed() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    Attempt(storage, "c1", name="p1").reserve()
    storage.add(volume("v", on="a", version="2"))
    assert storage.texts("VolumeBinding", pod("p2", "c2")) == {"a": []}


def test_unreserve_leaves_later_versions_alone() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    first, second = Attempt(storage, "c1", name="p1"), Attempt(storage, "c2", name="p2")
    first.reserve()
    storage.add(volume("v", on="a", version="2"))
    second.reserve()
    first.unreserve()
    assert storage.binding.index.volumes.is_assumed("v")


def test_one_claim_out_of_sync_leaves_nothing_assumed() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v1", on="a"))
    with pytest.raises(PluginError):
        Attempt(storage, "c1", "c2").reserve()
    assert not storage.binding.index.volumes.is_assumed("v1")


def test_bound_claims_need_nothing() -> None:
    storage = Storage(node("a"), claim("c", "v"), volume("v", to="c"))
    attempt = Attempt(storage, "c")
    attempt.reserve()
    assert not attempt.pre_binds()


def test_assumptions_are_shared_by_all_profiles() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    Attempt(storage, "c1", name="p1").reserve()
    other = VolumeBinding(None, storage.view)
    second = Attempt(storage, "c2", name="p2")
    with pytest.raises(PluginError):
        other.reserve(second.state, second.pod, second.node)


# PreBind.


def test_volume_is_patched_and_awaited() -> None:
    storage = Storage(node("a"), STATIC, claim("c", version="7"), volume("v", on="a", version="3"))
    attempt = Attempt(storage, "c")
    attempt.reserve()
    writer = FakeWriter(storage, bind(storage, "c", "v"))
    attempt.pre_bind(writer)
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "c",
        "uid": "uid-c",
        "resourceVersion": "7",
    }
    metadata = {"resourceVersion": "3", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
    assert writer.patches == [("v", {"metadata": metadata, "spec": {"claimRef": reference}})]
    assert not attempt.pre_binds()


def test_claim_is_patched_and_awaited() -> None:
    storage = Storage(node("a"), storage_class("wait"), claim("c", version="7"))
    attempt = Attempt(storage, "c")
    attempt.reserve()
    writer = FakeWriter(storage, lambda: storage.add(volume("made", to="c", on="a")), bind(storage, "c", "made"))
    attempt.pre_bind(writer)
    assert writer.patches == [("c", {"metadata": {"resourceVersion": "7", "annotations": {SELECTED_NODE: "a"}}})]


def test_volume_kept_by_the_user_gets_the_claims_uid_and_no_note() -> None:
    storage = Storage(node("a"), STATIC, claim("c"), volume("v", to="c", uid="", on="a"))
    attempt = Attempt(storage, "c")
    attempt.reserve()
    writer = FakeWriter(storage, bind(storage, "c", "v"))
    attempt.pre_bind(writer)
    ((_, patch),) = writer.patches
    assert patch["spec"]["claimRef"]["uid"] == "uid-c"
    assert "annotations" not in patch["metadata"]


def test_what_is_there_already_is_only_awaited() -> None:
    announced = claim("c2", annotations={SELECTED_NODE: "a"})
    storage = Storage(node("a"), storage_class("wait"), claim("c1"), volume("v", to="c1", on="a"), announced)
    attempt = Attempt(storage, "c1", "c2")
    attempt.reserve()
    storage.add(volume("w", to="c2"))
    writer = FakeWriter(storage, bind(storage, "c1", "v"), bind(storage, "c2", "w"))
    attempt.pre_bind(writer)
    assert not writer.patches
    assert not writer.events


def test_time_to_bind_is_an_argument() -> None:
    storage = Storage(node("a"), STATIC, claim("c"), volume("v", on="a"))
    storage.plugins["VolumeBinding"] = VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=5), storage.view)
    attempt, writer = Attempt(storage, "c"), FakeWriter(storage)
    attempt.reserve()
    with pytest.raises(PluginError, match="binding volumes: context deadline exceeded"):
        attempt.pre_bind(writer)
    assert writer.seconds == 5
    assert storage.binding.time_limit > 5


def test_two_pods_race_for_a_volume_through_the_api() -> None:
    """Another scheduler has written first."""
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    attempt = Attempt(storage, "c1")
    attempt.reserve()
    storage.view.objects["PersistentVolume"]["v"] = volume("v", on="a", to="c2", version="2")
    with pytest.raises(ConflictError):
        attempt.pre_bind(FakeWriter(storage))
    attempt.unreserve()
    assert not storage.binding.index.volumes.is_assumed("v")


def test_what_was_written_stays_assumed_until_the_api_shows_it() -> None:
    storage = Storage(node("a"), STATIC, claim("c1"), claim("c2"), volume("v", on="a"))
    attempt, writer = Attempt(storage, "c1"), FakeWriter(storage)
    writer.shows_writes = False
    attempt.reserve()
    with pytest.raises(PluginError, match="deadline"):
        attempt.pre_bind(writer)
    attempt.unreserve()
    assert storage.texts("VolumeBinding", pod("p2", "c2")) == {"a": NOTHING}


def failing(message: str, storage: Storage, event: Callable[[], None], *claims: str) -> None:
    attempt = Attempt(storage, *claims)
    attempt.reserve()
    with pytest.raises(PluginError) as caught:
        attempt.pre_bind(FakeWriter(storage, event))
    assert str(caught.value) == f"binding volumes: {message}"


def statically() -> Storage:
    return Storage(node("a"), STATIC, claim("c"), volume("v", on="a"), volume("w", on="b"))


def dynamically() -> Storage:
    return Storage(node("a"), storage_class("wait"), claim("c"))


def test_volume_is_taken_from_the_claim() -> None:
    storage = statically()
    failing('ClaimRef got reset for pv "v"', storage, lambda: storage.add(volume("v", on="a", version="9")), "c")


def test_claim_is_bound_elsewhere() -> None:
    storage = statically()
    failing('PVC "c" got bound to pv "w" instead of "v"', storage, bind(storage, "c", "w"), "c")


def test_volume_goes_away() -> None:
    storage = statically()
    text = 'failed to check binding: persistentvolumes "v" not found'
    failing(text, storage, lambda: storage.remove(volume("v")), "c")


def test_claim_goes_away() -> None:
    storage = statically()
    text = 'failed to check binding: persistentvolumeclaims "default/c" not found'
    failing(text, storage, lambda: storage.remove(claim("c")), "c")


def test_volume_gets_out_of_reach() -> None:
    storage = statically()
    text = 'pv "v" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'
    moved = changed(node("a"), labels={"kubernetes.io/hostname": "elsewhere"})
    failing(text, storage, lambda: storage.add(moved), "c")


def test_provisioner_gives_up() -> None:
    storage = dynamically()
    given_up = changed(claim("c"), resource_version="9", annotations={"other": "note"})
    failing('provisioning failed for PVC "c"', storage, lambda: storage.add(given_up), "c")


def test_all_annotations_are_gone() -> None:
    storage = dynamically()
    failing('selectedNode annotation reset for PVC "c"', storage, lambda: storage.add(claim("c", version="9")), "c")


def test_claim_to_be_made_goes_away() -> None:
    storage = dynamically()
    text = 'failed to check provisioning pvc: persistentvolumeclaims "default/c" not found'
    failing(text, storage, lambda: storage.remove(claim("c")), "c")


def test_volume_is_made_out_of_reach() -> None:
    storage = dynamically()

    def event() -> None:
        storage.add(volume("made", to="c", on="b"))
        bind(storage, "c", "made")()

    failing('pv "made" node affinity doesn\'t match node "a": no matching NodeSelectorTerms', storage, event, "c")


def test_pod_goes_away() -> None:
    storage = statically()
    text = 'pod does not exist any more: pod "p" not found'
    failing(text, storage, lambda: storage.remove(pod("p")), "c")


def test_node_goes_away() -> None:
    storage = statically()
    failing('failed to get node "a": node "a" not found', storage, lambda: storage.remove(node("a")), "c")


def test_volume_that_the_api_has_not_shown_yet_is_awaited() -> None:
    storage = dynamically()
    attempt = Attempt(storage, "c")
    attempt.reserve()
    writer = FakeWriter(storage, bind(storage, "c", "made"), lambda: storage.add(volume("made", to="c", on="a")))
    attempt.pre_bind(writer)
    assert not writer.events


def test_migrated_volume_is_checked_by_the_drivers_topology() -> None:
    storage = dynamically()
    storage.add(node("a", **{"topology.ebs.csi.aws.com/zone": "z1"}), csi_node("a", migrated="kubernetes.io/aws-ebs"))
    disk = volume("made", to="c", zone="z1", aws=AWSElasticBlockStoreVolumeSource(volume_id="vol-1"))
    attempt = Attempt(storage, "c")
    attempt.reserve()
    attempt.pre_bind(FakeWriter(storage, lambda: storage.add(disk), bind(storage, "c", "made")))
    assert not attempt.pre_binds()

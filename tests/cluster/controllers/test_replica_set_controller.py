"""The ReplicaSet controller on an API server."""

from __future__ import annotations

from functools import partial

from koordinator.api.kinds import PODS
from koordinator.cluster.controllers.replica_set.controller import ReplicaSetController
from koordinator.cluster.controllers.workloads import REPLICA_SETS, ReplicaSet
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.kube.object_cache import is_older
from tests.cluster.controllers.objects import LABELS, template
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.in_memory_api import ApiRequest
from tests.waiting import wait_for


def _has_settled(cluster: Cluster, written: ReplicaSet) -> bool:
    """Whether the controller knows of this version or of a later one, and has nothing left to do."""
    known = cluster.context.informers.informer(REPLICA_SETS).get(written.metadata.key)
    is_known = known is not None and not is_older(known.metadata.resource_version, written.metadata.resource_version)
    return is_known and cluster.context.reconcilers.in_hand == 0


@asynchronous
async def test_pods_are_made_of_the_template() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        metadata = {"labels": LABELS, "annotations": {"a": "b"}, "finalizers": ["example.com/keep"]}
        replica_set = await cluster.add_replica_set(3, template={**template(), "metadata": metadata})
        for pod in await cluster.all_pods(3):
            assert pod.metadata.name.startswith("web-")
            assert pod.metadata.labels == LABELS
            assert pod.metadata.annotations == {"a": "b"}
            assert pod.metadata.finalizers == ["example.com/keep"]
            (owner,) = pod.metadata.owner_references
            assert (owner.kind, owner.name, owner.uid) == ("ReplicaSet", "web", replica_set.metadata.uid)
            assert (owner.controller, owner.block_owner_deletion) == (True, True)


@asynchronous
async def test_the_status_follows_the_pods() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        await cluster.add_replica_set(2)
        first, _ = await cluster.all_pods(2)
        await cluster.make_ready(first)
        found = await cluster.once(REPLICA_SETS, lambda each: each.status.available_replicas == 1)
        status = found.status
        assert (status.replicas, status.fully_labeled_replicas, status.ready_replicas) == (2, 2, 1)
        assert (status.observed_generation, status.terminating_replicas) == (1, 0)


@asynchronous
async def test_a_pod_becomes_available_after_it_was_ready_for_long_enough() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        await cluster.add_replica_set(1, minReadySeconds=60)
        (pod,) = await cluster.all_pods(1)
        since = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}}
        await cluster.client.patch(PODS, pod.metadata.name, ready, PatchType.STRATEGIC, "default", subresource="status")
        found = await cluster.once(REPLICA_SETS, lambda each: each.status.ready_replicas == 1)
        assert found.status.available_replicas == 0
        await cluster.rest()
        await cluster.clock.advance(61)
        await cluster.once(REPLICA_SETS, lambda each: each.status.available_replicas == 1)


@asynchronous
async def test_too_many_pods_are_deleted() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        await cluster.add_replica_set(3)
        keep = (await cluster.all_pods(3))[1]
        await cluster.make_ready(keep)
        await cluster.once(REPLICA_SETS, lambda each: each.status.ready_replicas == 1)
        await cluster.change_spec(REPLICA_SETS, {"replicas": 1})
        (left,) = await cluster.all_pods(1)
        assert left.metadata.uid == keep.metadata.uid
        assert len(await cluster.notes("SuccessfulDelete", 2)) == 2


@asynchronous
async def test_each_pod_that_is_made_is_an_event() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        await cluster.add_replica_set(2)
        pods = await cluster.all_pods(2)
        notes = await cluster.notes("SuccessfulCreate", 2)
        assert sorted(notes) == sorted(f"Created pod: {pod.metadata.name}" for pod in pods)


@asynchronous
async def test_a_pod_that_ends_is_replaced() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        await cluster.add_replica_set(1)
        (pod,) = await cluster.all_pods(1)
        failed = {"status": {"phase": "Failed"}}
        await cluster.client.patch(PODS, pod.metadata.name, failed, PatchType.MERGE, "default", subresource="status")
        assert len(await cluster.all_pods(2)) == 2


@asynchronous
async def test_a_pod_that_it_selects_is_adopted() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        await cluster.add_pod("orphan")
        replica_set = await cluster.add_replica_set(1)
        (pod,) = await cluster.all_pods(1)
        assert [owner.uid for owner in pod.metadata.owner_references] == [replica_set.metadata.uid]


@asynchronous
async def test_a_pod_of_another_controller_is_left_alone() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        other = {"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "u", "controller": True}
        await cluster.add_pod("theirs", ownerReferences=[other])
        await cluster.add_replica_set(1)
        theirs = next(pod for pod in await cluster.all_pods(2) if pod.metadata.name == "theirs")
        assert [owner.uid for owner in theirs.metadata.owner_references] == ["u"]


@asynchronous
async def test_a_pod_that_no_longer_matches_is_released_and_replaced() -> None:
    async with running_controllers(ReplicaSetController) as cluster:
        await cluster.add_replica_set(1)
        (pod,) = await cluster.all_pods(1)
        labels = {"metadata": {"labels": {"app": "other"}}}
        await cluster.client.patch(PODS, pod.metadata.name, labels, PatchType.MERGE, "default")
        released = next(each for each in await cluster.all_pods(2) if each.metadata.name == pod.metadata.name)
        assert list(released.metadata.owner_references) == []


@asynchronous
async def test_a_refused_create_is_a_condition_and_an_event_and_ends_the_batch() -> None:
    async with running_controllers(ReplicaSetController) as cluster:

        def refuse(request: ApiRequest, done: bool) -> Exception | None:
            is_create = (request.verb, request.plural) == ("create", "pods")
            return ApiStatusError(403, "Forbidden", "exceeded quota") if is_create and not done else None

        cluster.api.fault = refuse
        await cluster.add_replica_set(8)
        found = await cluster.once(REPLICA_SETS, lambda each: bool(each.status.conditions))
        (condition,) = found.status.conditions
        assert (condition.type, condition.reason, condition.message) == (
            "ReplicaFailure",
            "FailedCreate",
            "exceeded quota",
        )
        assert (await cluster.notes("FailedCreate", 1))[0] == "Error creating: exceeded quota"
        assert sum(each == ApiRequest("create", "pods") for each in cluster.api.requests) == 1
        cluster.api.fault = lambda request, done: None
        await cluster.clock.advance(30)
        assert len(await cluster.all_pods(8)) == 8
        await cluster.once(REPLICA_SETS, lambda each: not each.status.conditions)


@asynchronous
async def test_pods_that_the_cache_does_not_show_yet_are_not_created_again() -> None:
    """The watch of pods brings nothing, and that of ReplicaSets one change after the other."""
    async with running_controllers(ReplicaSetController) as cluster:
        cluster.freeze_cache(PODS)
        await cluster.add_replica_set(3)
        await wait_for(lambda: len(cluster.api.all(PODS)) == 3)
        for number in range(5):
            body = {"metadata": {"labels": {"n": str(number)}}}
            written = await cluster.client.patch(REPLICA_SETS, "web", body, PatchType.MERGE, "default")
            await wait_for(partial(_has_settled, cluster, written))
        assert len(cluster.api.all(PODS)) == 3

"""The Deployment controller on an API server, with that of ReplicaSets beside it."""

from __future__ import annotations

import json
from typing import Any

from koordinator.api.kinds import PODS
from koordinator.cluster.controllers.deployment.controller import DeploymentController
from koordinator.cluster.controllers.replica_set.controller import ReplicaSetController
from koordinator.cluster.controllers.workloads import DEPLOYMENTS, REPLICA_SETS, ReplicaSet
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.objects import LABELS, template
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.in_memory_api import ApiRequest
from tests.waiting import wait_for

_BOTH = (DeploymentController, ReplicaSetController)
REVISION = "deployment.kubernetes.io/revision"


async def _roll_out(cluster: Cluster, replicas: int, image: str) -> Any:
    """Make every pod ready until all run ``image``; the Deployment then."""

    def pending() -> list[str]:
        return [pod["metadata"]["name"] for pod in cluster.api.all(PODS) if not pod.get("status", {}).get("conditions")]

    def is_done() -> bool:
        found = cluster.api.document(DEPLOYMENTS, "web", "default")
        status, wanted = found.get("status", {}), found["spec"]["template"]["spec"]["containers"][0]["image"]
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return wanted == image and is_seen and counts == [replicas] * 3

    while not is_done():
        await wait_for(lambda: bool(pending()) or is_done())
        for name in pending():
            try:
                await cluster.make_ready(await cluster.client.get(PODS, name, "default"))
            except ApiStatusError as error:
                if not error.is_not_found:  # deleted in the meantime
                    raise
    return await cluster.client.get(DEPLOYMENTS, "web", "default")


async def _replica_sets(cluster: Cluster) -> dict[str, ReplicaSet]:
    """By the image of their template."""
    found = (await cluster.client.list(REPLICA_SETS, "default")).items
    return {each.spec.template["spec"]["containers"][0]["image"]: each for each in found}


@asynchronous
async def test_it_rolls_out_and_back() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await cluster.add_deployment(3)
        await _roll_out(cluster, 3, "one")
        await cluster.change_spec(DEPLOYMENTS, {"template": template("two")})
        await _roll_out(cluster, 3, "two")
        await cluster.change_spec(DEPLOYMENTS, {"template": template("one")})
        deployment = await _roll_out(cluster, 3, "one")
        sets = await _replica_sets(cluster)
        assert {image: each.spec.replicas for image, each in sets.items()} == {"one": 3, "two": 0}
        assert {image: each.metadata.annotations[REVISION] for image, each in sets.items()} == {"one": "3", "two": "2"}
        await cluster.rest()
        deployment = await cluster.client.get(DEPLOYMENTS, "web", "default")
        assert deployment.metadata.annotations[REVISION] == "3"
        reasons = {each.type: each.reason for each in deployment.status.conditions}
        assert reasons == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}


@asynchronous
async def test_each_step_is_an_event() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await cluster.add_deployment(1, strategy={"type": "Recreate"})
        await _roll_out(cluster, 1, "one")
        await cluster.change_spec(DEPLOYMENTS, {"replicas": 2})
        name = next(iter((await _replica_sets(cluster)).values())).metadata.name
        assert await cluster.notes("ScalingReplicaSet", 2) == [
            f"Scaled up replica set {name} from 0 to 1",
            f"Scaled up replica set {name} from 1 to 2",
        ]


@asynchronous
async def test_a_recreation_has_no_pods_of_two_templates() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await cluster.add_deployment(2, strategy={"type": "Recreate"})
        await _roll_out(cluster, 2, "one")
        since = cluster.api.revision
        await cluster.change_spec(DEPLOYMENTS, {"template": template("two")})
        await _roll_out(cluster, 2, "two")
        images: dict[str, str] = {}
        for _, type_, pod in cluster.api.changes(PODS, since):
            images[pod["metadata"]["name"]] = pod["spec"]["containers"][0]["image"] if type_ != "DELETED" else ""
            assert {*images.values()} != {"one", "two"}


@asynchronous
async def test_a_change_during_a_pause_waits_for_its_end() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await cluster.add_deployment(1)
        await _roll_out(cluster, 1, "one")
        await cluster.change_spec(DEPLOYMENTS, {"paused": True, "template": template("two")})
        await cluster.once(
            DEPLOYMENTS, lambda each: any(found.reason == "DeploymentPaused" for found in each.status.conditions)
        )
        await cluster.rest()
        assert list(await _replica_sets(cluster)) == ["one"]
        await cluster.change_spec(DEPLOYMENTS, {"paused": False})
        await _roll_out(cluster, 1, "two")


@asynchronous
async def test_a_rollout_that_stands_still_is_overdue() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await cluster.add_deployment(1, progressDeadlineSeconds=30)
        await cluster.all_pods(1)
        await cluster.clock.advance(40)
        await cluster.once(
            DEPLOYMENTS,
            lambda each: any(found.reason == "ProgressDeadlineExceeded" for found in each.status.conditions),
        )


@asynchronous
async def test_a_name_that_is_taken_counts_as_a_collision() -> None:
    async with running_controllers(*_BOTH) as cluster:
        refused: list[str] = []

        def take(request: ApiRequest, done: bool) -> Exception | None:
            if done or refused or (request.verb, request.plural) != ("create", "replicasets"):
                return None
            document = json.loads(request.body)
            refused.append(document["metadata"]["name"])
            cluster.api.put(REPLICA_SETS, {**document, "metadata": {"name": refused[0], "namespace": "default"}})
            return None

        cluster.api.fault = take
        await cluster.add_deployment(1)
        found = await cluster.once(DEPLOYMENTS, lambda each: each.status.collision_count == 1)
        await cluster.once(REPLICA_SETS, lambda each: each.metadata.name not in refused)
        assert found.status.collision_count == 1


@asynchronous
async def test_a_replica_set_that_it_selects_is_adopted() -> None:
    async with running_controllers(*_BOTH) as cluster:
        spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template()}
        body = {"metadata": {"name": "orphan", "labels": LABELS}, "spec": spec}
        await cluster.client.create(REPLICA_SETS, body, "default")
        await cluster.add_deployment(1)
        await _roll_out(cluster, 1, "one")
        (adopted,) = (await _replica_sets(cluster)).values()
        (owner,) = adopted.metadata.owner_references
        assert (adopted.metadata.name, owner.name, owner.controller) == ("orphan", "web", True)


@asynchronous
async def test_a_replica_set_that_cannot_be_created_is_a_condition_and_an_event() -> None:
    async with running_controllers(*_BOTH) as cluster:

        def refuse(request: ApiRequest, done: bool) -> Exception | None:
            is_create = (request.verb, request.plural) == ("create", "replicasets")
            return ApiStatusError(403, "Forbidden", "not here") if is_create and not done else None

        cluster.api.fault = refuse
        await cluster.add_deployment(1)
        found = await cluster.once(DEPLOYMENTS, lambda each: bool(each.status.conditions))
        (condition,) = found.status.conditions
        assert (condition.type, condition.status, condition.reason) == ("Progressing", "False", "ReplicaSetCreateError")
        (note, *_) = await cluster.notes("ReplicaSetCreateError", 1)
        assert note == condition.message
        assert note.endswith('": not here')


@asynchronous
async def test_its_annotations_are_those_of_the_new_replica_set() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await cluster.add_deployment(1)
        await _roll_out(cluster, 1, "one")
        cause = {"metadata": {"annotations": {"kubernetes.io/change-cause": "a better one"}}}
        await cluster.client.patch(DEPLOYMENTS, "web", cause, PatchType.MERGE, "default")
        await cluster.once(
            REPLICA_SETS,
            lambda each: each.metadata.annotations.get("kubernetes.io/change-cause") == "a better one",
        )

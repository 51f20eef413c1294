"""The Deployment controller on an API server, with that of ReplicaSets beside it."""

from __future__ import annotations

import json
from typing import Any

from koordinator.api.kinds import PODS
from koordinator.cluster.controllers.workloads import DEPLOYMENTS, REPLICA_SETS, ReplicaSet
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.bench import Bench, run
from tests.cluster.controllers.objects import LABELS, template
from tests.in_memory_api import ApiRequest
from tests.waiting import wait_for

REVISION = "deployment.kubernetes.io/revision"


async def _roll_out(made: Bench, replicas: int, image: str) -> Any:
    """Make every pod ready until all run ``image``; the Deployment then."""

    def pending() -> list[str]:
        return [pod["metadata"]["name"] for pod in made.api.all(PODS) if not pod.get("status", {}).get("conditions")]

    def is_done() -> bool:
        found = made.api.document(DEPLOYMENTS, "web", "default")
        status, wanted = found.get("status", {}), found["spec"]["template"]["spec"]["containers"][0]["image"]
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return wanted == image and is_seen and counts == [replicas] * 3

    while not is_done():
        await wait_for(lambda: bool(pending()) or is_done())
        for name in pending():
            try:
                await made.make_ready(await made.client.get(PODS, name, "default"))
            except ApiStatusError as error:
                if not error.is_not_found:  # deleted in the meantime
                    raise
    return await made.client.get(DEPLOYMENTS, "web", "default")


async def _replica_sets(made: Bench) -> dict[str, ReplicaSet]:
    """By the image of their template."""
    found = (await made.client.list(REPLICA_SETS, "default")).items
    return {each.spec.template["spec"]["containers"][0]["image"]: each for each in found}


def test_it_rolls_out_and_back() -> None:
    async def scenario(made: Bench) -> None:
        await made.add_deployment(3)
        await _roll_out(made, 3, "one")
        await made.change(DEPLOYMENTS, {"template": template("two")})
        await _roll_out(made, 3, "two")
        await made.change(DEPLOYMENTS, {"template": template("one")})
        deployment = await _roll_out(made, 3, "one")
        sets = await _replica_sets(made)
        assert {image: each.spec.replicas for image, each in sets.items()} == {"one": 3, "two": 0}
        assert {image: each.metadata.annotations[REVISION] for image, each in sets.items()} == {"one": "3", "two": "2"}
        await made.rest()
        deployment = await made.client.get(DEPLOYMENTS, "web", "default")
        assert deployment.metadata.annotations[REVISION] == "3"
        reasons = {each.type: each.reason for each in deployment.status.conditions}
        assert reasons == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}

    run(scenario)


def test_each_step_is_an_event() -> None:
    async def scenario(made: Bench) -> None:
        await made.add_deployment(1, strategy={"type": "Recreate"})
        await _roll_out(made, 1, "one")
        await made.change(DEPLOYMENTS, {"replicas": 2})
        name = next(iter((await _replica_sets(made)).values())).metadata.name
        assert await made.notes("ScalingReplicaSet", 2) == [
            f"Scaled up replica set {name} from 0 to 1",
            f"Scaled up replica set {name} from 1 to 2",
        ]

    run(scenario)


def test_a_recreation_has_no_pods_of_two_templates() -> None:
    async def scenario(made: Bench) -> None:
        await made.add_deployment(2, strategy={"type": "Recreate"})
        await _roll_out(made, 2, "one")
        since = made.api.revision
        await made.change(DEPLOYMENTS, {"template": template("two")})
        await _roll_out(made, 2, "two")
        images: dict[str, str] = {}
        for _, type_, pod in made.api.changes(PODS, since):
            images[pod["metadata"]["name"]] = pod["spec"]["containers"][0]["image"] if type_ != "DELETED" else ""
            assert {*images.values()} != {"one", "two"}

    run(scenario)


def test_a_change_during_a_pause_waits_for_its_end() -> None:
    async def scenario(made: Bench) -> None:
        await made.add_deployment(1)
        await _roll_out(made, 1, "one")
        await made.change(DEPLOYMENTS, {"paused": True, "template": template("two")})
        await made.once(
            DEPLOYMENTS, lambda each: any(found.reason == "DeploymentPaused" for found in each.status.conditions)
        )
        await made.rest()
        assert list(await _replica_sets(made)) == ["one"]
        await made.change(DEPLOYMENTS, {"paused": False})
        await _roll_out(made, 1, "two")

    run(scenario)


def test_a_rollout_that_stands_still_is_overdue() -> None:
    async def scenario(made: Bench) -> None:
        await made.add_deployment(1, progressDeadlineSeconds=30)
        await made.pods(1)
        await made.clock.advance(40)
        await made.once(
            DEPLOYMENTS,
            lambda each: any(found.reason == "ProgressDeadlineExceeded" for found in each.status.conditions),
        )

    run(scenario)


def test_a_name_that_is_taken_counts_as_a_collision() -> None:
    async def scenario(made: Bench) -> None:
        refused: list[str] = []

        def take(request: ApiRequest, done: bool) -> Exception | None:
            if done or refused or (request.verb, request.plural) != ("create", "replicasets"):
                return None
            document = json.loads(request.body)
            refused.append(document["metadata"]["name"])
            made.api.put(REPLICA_SETS, {**document, "metadata": {"name": refused[0], "namespace": "default"}})
            return None

        made.api.fault = take
        await made.add_deployment(1)
        found = await made.once(DEPLOYMENTS, lambda each: each.status.collision_count == 1)
        await made.once(REPLICA_SETS, lambda each: each.metadata.name not in refused)
        assert found.status.collision_count == 1

    run(scenario)


def test_a_replica_set_that_it_selects_is_adopted() -> None:
    async def scenario(made: Bench) -> None:
        spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template()}
        body = {"metadata": {"name": "orphan", "labels": LABELS}, "spec": spec}
        await made.client.create(REPLICA_SETS, body, "default")
        await made.add_deployment(1)
        await _roll_out(made, 1, "one")
        (adopted,) = (await _replica_sets(made)).values()
        (owner,) = adopted.metadata.owner_references
        assert (adopted.metadata.name, owner.name, owner.controller) == ("orphan", "web", True)

    run(scenario)


def test_a_replica_set_that_cannot_be_created_is_a_condition_and_an_event() -> None:
    async def scenario(made: Bench) -> None:
        def refuse(request: ApiRequest, done: bool) -> Exception | None:
            is_create = (request.verb, request.plural) == ("create", "replicasets")
            return ApiStatusError(403, "Forbidden", "not here") if is_create and not done else None

        made.api.fault = refuse
        await made.add_deployment(1)
        found = await made.once(DEPLOYMENTS, lambda each: bool(each.status.conditions))
        (condition,) = found.status.conditions
        assert (condition.type, condition.status, condition.reason) == ("Progressing", "False", "ReplicaSetCreateError")
        (note, *_) = await made.notes("ReplicaSetCreateError", 1)
        assert note == condition.message
        assert note.endswith('": not here')

    run(scenario)


def test_its_annotations_are_those_of_the_new_replica_set() -> None:
    async def scenario(made: Bench) -> None:
        await made.add_deployment(1)
        await _roll_out(made, 1, "one")
        cause = {"metadata": {"annotations": {"kubernetes.io/change-cause": "a better one"}}}
        await made.client.patch(DEPLOYMENTS, "web", cause, PatchType.MERGE, "default")
        await made.once(
            REPLICA_SETS,
            lambda each: each.metadata.annotations.get("kubernetes.io/change-cause") == "a better one",
        )

    run(scenario)

"""ReplicationControllers, which differ from ReplicaSets in their selector and in the name in their events."""

from __future__ import annotations

from koordinator.api.kinds import EVENTS, PODS
from koordinator.cluster.controllers.replica_set.controller import ReplicaSetController, ReplicationControllerController
from koordinator.cluster.controllers.workloads import REPLICATION_CONTROLLERS
from tests.cluster.controllers.objects import LABELS, template
from tests.cluster.controllers.running_controllers import asynchronous, running_controllers

_RUNNING = (ReplicaSetController, ReplicationControllerController)


@asynchronous
async def test_it_keeps_the_number_of_its_pods_and_counts_them() -> None:
    async with running_controllers(*_RUNNING) as cluster:
        await cluster.create(REPLICATION_CONTROLLERS, "web", {"replicas": 2, "template": template()})
        first, _ = await cluster.pods(2)
        (owner,) = first["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("v1", "ReplicationController", "web")
        await cluster.set_phase(first, "Running")
        found = await cluster.until(
            REPLICATION_CONTROLLERS, "web", lambda each: each["status"].get("readyReplicas") == 1
        )
        assert found["status"] == {
            "replicas": 2,
            "fullyLabeledReplicas": 2,
            "readyReplicas": 1,
            "availableReplicas": 1,
            "observedGeneration": 1,
        }
        event = await cluster.event("SuccessfulCreate")
        assert event["reportingComponent"] == "replication-controller"
        await cluster.patch(REPLICATION_CONTROLLERS, "web", {"spec": {"replicas": 1}})
        assert await cluster.pods(1) == [cluster.api.document(PODS, first["metadata"]["name"], "default")]


@asynchronous
async def test_it_adopts_the_pods_that_it_selects() -> None:
    async with running_controllers(*_RUNNING) as cluster:
        body = {**template(), "metadata": {"name": "orphan", "labels": LABELS}}
        await cluster.client.create(PODS, body, "default")
        await cluster.create(REPLICATION_CONTROLLERS, "web", {"replicas": 1, "template": template()})
        await cluster.until(PODS, "orphan", lambda pod: bool(pod["metadata"].get("ownerReferences")))
        assert cluster.api.names(PODS) == ["orphan"]
        created = [event for event in cluster.api.all(EVENTS) if event["reason"] == "SuccessfulCreate"]
        assert created == []

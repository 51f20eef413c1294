"""The StatefulSet controller on an API server in memory."""

from __future__ import annotations

from typing import Any

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PODS
from koordinator.cluster.controllers.revision_history import CONTROLLER_REVISIONS, REVISION_HASH
from koordinator.cluster.controllers.stateful_set.controller import StatefulSetController
from koordinator.cluster.controllers.stateful_set.types import STATEFUL_SETS
from tests.cluster.controllers.running_controllers import Cluster, Document, asynchronous, running_controllers
from tests.waiting import wait_for

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def spec_with(image: str = "web:1", **spec: Any) -> Document:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {"serviceName": "web", "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}


async def run_pods(cluster: Cluster, count: int, image: str) -> None:
    """Be the kubelet until there are so many pods with this image."""

    def is_done() -> bool:
        pods = cluster.live_pods()
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        running = sum(pod["status"].get("phase") == "Running" for pod in pods)
        return running == count and len(pods) == len(cluster.api.all(PODS)) and images <= {image}

    def has_work() -> bool:
        return is_done() or any(map(_waits, cluster.api.all(PODS)))

    while not is_done():
        await wait_for(has_work)
        for pod in filter(_waits, cluster.api.all(PODS)):
            if "deletionTimestamp" in pod["metadata"]:
                cluster.api.remove(PODS, pod["metadata"]["name"], "default")
            else:
                await cluster.set_phase(pod, "Running")


def _waits(pod: Document) -> bool:
    return "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") == "Pending"


@asynchronous
async def test_pods_come_and_go_in_order() -> None:
    async with running_controllers(StatefulSetController) as cluster:
        await cluster.create(STATEFUL_SETS, "web", spec_with(replicas=3))
        await run_pods(cluster, 3, "web:1")
        assert cluster.api.names(PODS) == ["web-0", "web-1", "web-2"]
        await cluster.patch(STATEFUL_SETS, "web", {"spec": {"replicas": 1}})
        await run_pods(cluster, 1, "web:1")
        found = await cluster.until(STATEFUL_SETS, "web", lambda each: each["status"].get("availableReplicas") == 1)
    assert cluster.api.names(PODS) == ["web-0"]
    assert found["status"]["replicas"] == 1


@asynchronous
async def test_a_new_template_is_rolled_out() -> None:
    async with running_controllers(StatefulSetController) as cluster:
        await cluster.create(STATEFUL_SETS, "web", spec_with(replicas=2))
        await run_pods(cluster, 2, "web:1")
        await cluster.patch(STATEFUL_SETS, "web", {"spec": spec_with("web:2")})
        await run_pods(cluster, 2, "web:2")
        found = await cluster.until(
            STATEFUL_SETS, "web", lambda each: each["status"]["currentRevision"] == each["status"]["updateRevision"]
        )
    revisions = {each["revision"]: each["metadata"]["name"] for each in cluster.api.all(CONTROLLER_REVISIONS)}
    assert found["status"]["updateRevision"] == revisions[2]
    assert {pod["metadata"]["labels"][REVISION_HASH] for pod in cluster.api.all(PODS)} == {revisions[2]}


@asynchronous
async def test_each_pod_has_a_claim_that_stays() -> None:
    async with running_controllers(StatefulSetController) as cluster:
        await cluster.create(STATEFUL_SETS, "web", spec_with(replicas=2, volumeClaimTemplates=[CLAIM]))
        await run_pods(cluster, 2, "web:1")
        await cluster.patch(STATEFUL_SETS, "web", {"spec": {"replicas": 0}})
        await run_pods(cluster, 0, "web:1")
    assert cluster.api.names(PERSISTENT_VOLUME_CLAIMS) == ["data-web-0", "data-web-1"]


@asynchronous
async def test_a_claim_goes_with_a_pod_that_was_scaled_away() -> None:
    policy = {"whenScaled": "Delete"}
    async with running_controllers(StatefulSetController) as cluster:
        spec = spec_with(replicas=1, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)
        await cluster.create(STATEFUL_SETS, "web", spec)
        await run_pods(cluster, 1, "web:1")
        await cluster.patch(STATEFUL_SETS, "web", {"spec": {"replicas": 0}})

        def owner() -> list[str]:
            claim = cluster.api.document(PERSISTENT_VOLUME_CLAIMS, "data-web-0", "default")
            return [each["kind"] for each in claim["metadata"].get("ownerReferences", [])]

        await wait_for(lambda: owner() == ["Pod"])


@asynchronous
async def test_pods_of_others_are_not_adopted() -> None:
    async with running_controllers(StatefulSetController) as cluster:
        pod = spec_with()["template"]["spec"]
        await cluster.create(PODS, "web-x", pod, labels={"app": "web"})
        await cluster.create(STATEFUL_SETS, "web", spec_with(replicas=1))
        await cluster.until(PODS, "web-0", lambda pod: True)
    assert "ownerReferences" not in cluster.api.document(PODS, "web-x", "default")["metadata"]

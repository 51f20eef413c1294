"""The DaemonSet controller on an API server in memory."""

from __future__ import annotations

from typing import Any

from koordinator.api.kinds import NODES, PODS
from koordinator.cluster.controllers.daemon_set.controller import DaemonSetController, FailurePauses
from koordinator.cluster.controllers.daemon_set.types import DAEMON_SETS
from koordinator.cluster.controllers.revision_history import CONTROLLER_REVISIONS, REVISION_HASH
from tests.cluster.controllers.running_controllers import Cluster, Document, asynchronous, running_controllers
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for


def api_with_nodes(*names: str) -> InMemoryApi:
    api = InMemoryApi()
    for name in names:
        api.put(NODES, {"metadata": {"name": name}})
    return api


def spec_with(image: str = "agent:1", **spec: Any) -> Document:
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {"selector": {"matchLabels": {"app": "agent"}}, "template": template, **spec}


async def all_ready(cluster: Cluster, count: int) -> list[Document]:
    pods = await cluster.pods(count)
    for pod in pods:
        await cluster.set_phase(pod, "Running")
    await cluster.until(DAEMON_SETS, "agent", lambda each: each["status"].get("numberAvailable") == count)
    return pods


@asynchronous
async def test_a_pod_for_each_node() -> None:
    async with running_controllers(DaemonSetController, api=api_with_nodes("a", "b")) as cluster:
        await cluster.create(DAEMON_SETS, "agent", spec_with())
        await all_ready(cluster, 2)
        status = cluster.api.document(DAEMON_SETS, "agent", "default")["status"]
    assert status == {
        "currentNumberScheduled": 2,
        "desiredNumberScheduled": 2,
        "numberAvailable": 2,
        "numberMisscheduled": 0,
        "numberReady": 2,
        "observedGeneration": 1,
        "updatedNumberScheduled": 2,
    }


@asynchronous
async def test_a_new_node_gets_a_pod() -> None:
    async with running_controllers(DaemonSetController, api=api_with_nodes("a")) as cluster:
        await cluster.create(DAEMON_SETS, "agent", spec_with())
        await cluster.pods(1)
        cluster.api.put(NODES, {"metadata": {"name": "b"}})
        await cluster.pods(2)


@asynchronous
async def test_a_new_template_is_rolled_out_and_remembered() -> None:
    async with running_controllers(DaemonSetController, api=api_with_nodes("a", "b")) as cluster:
        await cluster.create(DAEMON_SETS, "agent", spec_with())
        before = await all_ready(cluster, 2)
        await cluster.patch(DAEMON_SETS, "agent", {"spec": spec_with("agent:2")})
        for _ in before:
            await cluster.pods(1)
            for pod in cluster.api.all(PODS):
                if "deletionTimestamp" in pod["metadata"]:
                    cluster.api.remove(PODS, pod["metadata"]["name"], "default")
            await all_ready(cluster, 2)
        hashes = {pod["metadata"]["labels"][REVISION_HASH] for pod in cluster.live_pods()}
    revisions = sorted(cluster.api.all(CONTROLLER_REVISIONS), key=lambda each: int(each["revision"]))
    assert [each["revision"] for each in revisions] == [1, 2]
    assert hashes == {revisions[1]["metadata"]["labels"][REVISION_HASH]}
    assert revisions[1]["data"]["spec"]["template"]["spec"]["containers"][0]["image"] == "agent:2"


async def revisions_are(cluster: Cluster, *numbers: int) -> None:
    """Wait until there are just these."""
    await wait_for(lambda: sorted(each["revision"] for each in cluster.api.all(CONTROLLER_REVISIONS)) == [*numbers])


@asynchronous
async def test_an_earlier_template_gets_the_highest_number() -> None:
    async with running_controllers(DaemonSetController, api=api_with_nodes()) as cluster:
        await cluster.create(DAEMON_SETS, "agent", spec_with())
        await revisions_are(cluster, 1)
        await cluster.patch(DAEMON_SETS, "agent", {"spec": spec_with("agent:2")})
        await revisions_are(cluster, 1, 2)
        await cluster.patch(DAEMON_SETS, "agent", {"spec": spec_with("agent:1")})
        await revisions_are(cluster, 2, 3)


@asynchronous
async def test_old_revisions_go() -> None:
    async with running_controllers(DaemonSetController, api=api_with_nodes()) as cluster:
        await cluster.create(DAEMON_SETS, "agent", spec_with(revisionHistoryLimit=1))
        await revisions_are(cluster, 1)
        await cluster.patch(DAEMON_SETS, "agent", {"spec": spec_with("agent:2")})
        await revisions_are(cluster, 1, 2)
        await cluster.patch(DAEMON_SETS, "agent", {"spec": spec_with("agent:3")})
        await revisions_are(cluster, 2, 3)


def test_pauses_after_failures() -> None:
    pauses = FailurePauses()
    assert pauses.remaining("uid", "node", 0.0) == 0.0
    pauses.deleted("uid", "node", 0.0)
    pauses.deleted("uid", "node", 10.0)
    assert pauses.remaining("uid", "node", 10.5) == 1.5
    pauses.deleted("uid", "node", 5000.0)
    assert pauses.remaining("uid", "node", 5000.0) == 1.0

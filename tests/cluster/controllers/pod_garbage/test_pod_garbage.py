"""Pods that nobody else removes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from koordinator.api.kinds import NODES, PODS
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.pod_garbage.controller import PodGarbageController
from koordinator.cluster.controllers.pod_garbage.plan import OUT_OF_SERVICE, Quarantine, plan_garbage
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.objects import NOW, ago
from tests.cluster.controllers.running_controllers import asynchronous, running_controllers

OFF = Node(
    metadata=ObjectMeta(name="off"),
    spec=NodeSpec(taints=[Taint(key=OUT_OF_SERVICE, effect="NoExecute")]),
    status=NodeStatus(conditions=[NodeCondition(type="Ready", status="Unknown")]),
)
ON = Node(
    metadata=ObjectMeta(name="on"),
    spec=NodeSpec(taints=[Taint(key=OUT_OF_SERVICE, effect="NoExecute")]),
    status=NodeStatus(conditions=[NodeCondition(type="Ready", status="True")]),
)
SILENT = Node(
    metadata=ObjectMeta(name="silent"), status=NodeStatus(conditions=[NodeCondition(type="Ready", status="Unknown")])
)
NODES_BY_NAME = {node.metadata.name: node for node in (OFF, ON, SILENT)}


def pod(
    name: str, node: str = "", *, going: bool = False, phase: str = "Running", reason: str = "", created: datetime = NOW
) -> Pod:
    metadata = ObjectMeta(name=name, uid=name, creation_timestamp=created, deletion_timestamp=NOW if going else None)
    return Pod(metadata=metadata, spec=PodSpec(node_name=node), status=PodStatus(phase=phase, reason=reason))


@pytest.mark.parametrize(
    ("given", "removed"),
    [
        (pod("p", going=True), True),
        (pod("p"), False),
        (pod("p", "off", going=True), True),
        (pod("p", "off"), False),
        (pod("p", "on", going=True), False),
        (pod("p", "silent", going=True), False),
        (pod("p", "missing", going=True), False),
    ],
)
def test_pods_that_no_kubelet_will_confirm_are_removed(given: Pod, removed: bool) -> None:
    garbage = plan_garbage([given], NODES_BY_NAME, ())
    assert (list(garbage.pods) == [given], garbage.orphaned) == (removed, [])


def test_pods_of_nodes_that_are_gone_are_orphaned() -> None:
    running, going = pod("a", "gone"), pod("b", "gone", going=True)
    garbage = plan_garbage([running, going, pod("c", "on")], NODES_BY_NAME, {"gone"})
    assert (garbage.pods, garbage.orphaned) == ([], [running, going])


def test_of_too_many_ended_pods_the_evicted_and_the_oldest_go() -> None:
    ended = [
        pod("young", phase="Succeeded"),
        pod("evicted", phase="Failed", reason="Evicted"),
        pod("old", phase="Failed", created=ago(60)),
        pod("older", phase="Succeeded", created=ago(90)),
        pod("running"),
    ]
    names = [[each.metadata.name for each in plan_garbage(ended, {}, (), kept).pods] for kept in (4, 2, 1, 0)]
    assert names == [[], ["evicted", "older"], ["evicted", "older", "old"], []]


def test_a_node_is_gone_when_it_has_been_missing_for_forty_seconds() -> None:
    quarantine = Quarantine()
    assert quarantine.due({"a"}, 0) == []
    assert quarantine.due({"a", "b"}, 20) == []
    assert quarantine.due({"a", "b"}, 40) == ["a"]
    assert quarantine.due({"a"}, 60) == []
    assert quarantine.due({"a", "b"}, 80) == []
    assert quarantine.due({"a", "b"}, 100) == ["a"]


async def _collect() -> None:
    async with running_controllers(PodGarbageController) as cluster:
        clock = cluster.api.clock
        assert isinstance(clock, ManualClock)
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
        await cluster.client.create(NODES, {"metadata": {"name": "n"}})
        for name, node in (("on-node", "n"), ("other", "")):
            await cluster.create(PODS, name, spec | {"nodeName": node})
        seen = []
        stays = {"metadata": {"finalizers": ["example.com/stays"]}}
        await cluster.client.patch(PODS, "on-node", stays, PatchType.MERGE, "default")
        await cluster.client.delete(NODES, "n")
        for _ in range(4):
            await clock.advance(20)
            seen.append(cluster.api.document(PODS, "on-node", "default")["status"].get("phase"))
        assert seen == ["Pending", "Pending", "Failed", "Failed"]
        found = cluster.api.document(PODS, "on-node", "default")
        assert "deletionTimestamp" in found["metadata"]
        (target,) = (each for each in found["status"]["conditions"] if each["type"] == "DisruptionTarget")
        assert (target["reason"], target["message"]) == ("DeletionByPodGC", "PodGC: node no longer exists")
        assert cluster.api.document(PODS, "other", "default")["status"]["phase"] == "Pending"


def test_a_pod_of_a_deleted_node_fails_and_is_deleted() -> None:
    asynchronous(_collect)()

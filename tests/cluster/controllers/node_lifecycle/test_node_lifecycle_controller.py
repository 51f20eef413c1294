"""Nodes that fall silent and come back, as the controllers see and treat them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordinator.api.kinds import EVENTS, LEASES, NAMESPACES, NODES, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.node_lifecycle.controller import NodeLifecycleController
from koordinator.cluster.controllers.taint_eviction.controller import TaintEvictionController
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for

Document = dict[str, Any]
LOST = "lost"


class Nodes:
    """Two nodes, ``well`` and ``lost``, of which both renew their leases as long as they are told to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.alive = {"well", LOST}
        self._renewals = 0
        assert isinstance(cluster.api.clock, ManualClock)
        self.clock = cluster.api.clock

    async def add(self) -> None:
        await self.cluster.client.create(NAMESPACES, {"metadata": {"name": "kube-node-lease"}})
        for name in sorted(self.alive):
            body: Document = {"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": name}}}
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
            body["status"] = {"conditions": [ready]}
            await self.cluster.client.create(NODES, body)
            await self.cluster.client.create(LEASES, {"metadata": {"name": name}, "spec": {}}, "kube-node-lease")
        await self.pass_time(5)

    async def pass_time(self, seconds: int) -> None:
        """Seconds pass, and the nodes that live renew their leases every five."""
        for _ in range(seconds // 5):
            self._renewals += 1
            moment = f"2026-01-01T00:{self._renewals // 60:02}:{self._renewals % 60:02}.000000Z"
            for name in sorted(self.alive):
                spec = {"spec": {"renewTime": moment}}
                await self.cluster.client.patch(LEASES, name, spec, PatchType.MERGE, "kube-node-lease")
            await self.clock.advance(5)

    async def report_ready(self, name: str) -> None:
        """As the kubelet reports it."""
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T01:00:00Z"}
        body = {"status": {"conditions": [ready]}}
        await self.cluster.client.patch(NODES, name, body, PatchType.STRATEGIC, subresource="status")

    async def add_pod(self, name: str, node: str = LOST, **spec: Any) -> None:
        body = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec}
        pod = await self.cluster.create(PODS, name, body)
        await self.cluster.set_phase(pod, "Running")

    def node(self, name: str = LOST) -> Document:
        return self.cluster.api.document(NODES, name)

    def taints(self, name: str = LOST) -> set[tuple[str, str]]:
        found = self.node(name)["spec"].get("taints") or ()
        return {(taint["key"].rpartition("/")[2], taint["effect"]) for taint in found}

    def ready(self, name: str = LOST) -> str:
        return status_of(self.node(name), "Ready")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass while the nodes live until it ``holds``."""
        for _ in range(100):
            if holds():
                return
            await self.pass_time(5)
        raise AssertionError((self.node(), self.cluster.api.all(PODS)))


def status_of(obj: Document, type_: str) -> str:
    conditions = obj["status"].get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == type_), "")


def events(cluster: Cluster, reason: str) -> list[str]:
    return [event["message"] for event in cluster.api.all(EVENTS) if event["reason"] == reason]


async def _lose() -> None:
    async with running_controllers(NodeLifecycleController, TaintEvictionController) as cluster:
        nodes = Nodes(cluster)
        await nodes.add()
        await nodes.add_pod("web")
        await nodes.pass_time(60)
        assert nodes.ready() == "True"
        nodes.alive.discard(LOST)
        await nodes.pass_time(45)
        assert nodes.ready() == "True"
        await nodes.pass_time(20)
        assert (nodes.ready(), nodes.ready("well")) == ("Unknown", "True")
        await nodes.until(lambda: len(nodes.taints()) == 2)
        assert nodes.taints() == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
        pod = cluster.api.document(PODS, "web", "default")
        assert status_of(pod, "Ready") == "False"
        assert "deletionTimestamp" not in pod["metadata"]
        # The default toleration of 300 seconds.
        await nodes.pass_time(280)
        assert "deletionTimestamp" not in cluster.api.document(PODS, "web", "default")["metadata"]
        await nodes.pass_time(40)
        pod = cluster.api.document(PODS, "web", "default")
        assert "deletionTimestamp" in pod["metadata"]
        assert status_of(pod, "DisruptionTarget") == "True"
        assert events(cluster, "TaintManagerEviction") == ["Marking for deletion Pod default/web"]
        assert events(cluster, "NodeNotReady") == ["Node lost status is now: NodeNotReady", "Node is not ready"]
        assert len(events(cluster, "RegisteredNode")) == 2


def test_a_node_that_falls_silent_loses_its_pods() -> None:
    asynchronous(_lose)()


async def _return() -> None:
    async with running_controllers(NodeLifecycleController, TaintEvictionController) as cluster:
        nodes = Nodes(cluster)
        await nodes.add()
        await nodes.add_pod("web")
        nodes.alive.discard(LOST)
        await nodes.until(lambda: ("unreachable", "NoExecute") in nodes.taints())
        nodes.alive.add(LOST)
        await nodes.report_ready(LOST)
        await nodes.until(lambda: nodes.taints() == set())
        await nodes.pass_time(400)
        assert "deletionTimestamp" not in cluster.api.document(PODS, "web", "default")["metadata"]
        assert events(cluster, "TaintManagerEviction") == ["Cancelling deletion of Pod default/web"]


def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    asynchronous(_return)()


async def _lose_all() -> None:
    async with running_controllers(NodeLifecycleController, TaintEvictionController) as cluster:
        nodes = Nodes(cluster)
        await nodes.add()
        await nodes.add_pod("web")
        nodes.alive.clear()
        await nodes.pass_time(600)
        assert nodes.ready() == nodes.ready("well") == "Unknown"
        assert nodes.taints() == {("unreachable", "NoSchedule")}
        assert "deletionTimestamp" not in cluster.api.document(PODS, "web", "default")["metadata"]


def test_no_pod_is_evicted_when_every_node_falls_silent() -> None:
    asynchronous(_lose_all)()


async def _late_pod() -> None:
    async with running_controllers(NodeLifecycleController) as cluster:
        nodes = Nodes(cluster)
        await nodes.add()
        nodes.alive.discard(LOST)
        await nodes.until(lambda: nodes.ready() == "Unknown")
        pod = await cluster.create(PODS, "web", {"containers": [{"name": "c", "image": "i"}]})
        await cluster.set_phase(pod, "Running")
        target = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": LOST}}
        await cluster.client.create(PODS, target, "default", name="web", subresource="binding")
        await cluster.until(PODS, "web", lambda pod: status_of(pod, "Ready") == "False")


def test_a_pod_that_is_bound_to_a_lost_node_is_not_ready() -> None:
    asynchronous(_late_pod)()


async def _cordon() -> None:
    async with running_controllers(NodeLifecycleController) as cluster:
        nodes = Nodes(cluster)
        await nodes.add()
        await cluster.client.patch(NODES, "well", {"spec": {"unschedulable": True}}, PatchType.MERGE)
        await wait_for(lambda: nodes.taints("well") == {("unschedulable", "NoSchedule")})
        await cluster.client.patch(NODES, "well", {"spec": {"unschedulable": None}}, PatchType.MERGE)
        await wait_for(lambda: nodes.taints("well") == set())


def test_a_cordoned_node_has_a_taint() -> None:
    asynchronous(_cordon)()


async def _conflict() -> None:
    api = InMemoryApi()
    async with running_controllers(NodeLifecycleController, api=api) as cluster:
        nodes = Nodes(cluster)
        await nodes.add()
        taints = [{"key": "mine", "effect": "NoSchedule"}]
        cluster.freeze_cache(NODES)
        await cluster.client.patch(NODES, LOST, {"spec": {"taints": taints}}, PatchType.MERGE)
        nodes.alive.discard(LOST)
        await nodes.pass_time(120)
        # The controller has not seen the taint, and does not undo it.
        assert nodes.taints() == {("mine", "NoSchedule")}


def test_a_taint_that_the_controller_has_not_seen_stays() -> None:
    asynchronous(_conflict)()

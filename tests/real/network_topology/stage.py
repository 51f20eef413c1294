"""A network of eleven nodes, gangs that request a place in it, and where they end."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES, NODES, POD_GROUPS, PODS, Kind
from koordinator.kube.client import KubeClient
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.gangs.stage import NAMESPACE, POD_GROUP, Stage
from tests.real.watched import watching

SPINE: Final = "example.com/spine"
BLOCK: Final = "example.com/block"
SELECTOR: Final = "scheduling.koordinator.sh/network-topology-selector"
PLACES: Final[Mapping[str, tuple[str, int]]] = {
    "n00": ("s0/b0", 2),
    "n01": ("s0/b0", 2),
    "n02": ("s0/b1", 1),
    "n03": ("s0/b1", 1),
    "n04": ("s1/b2", 1),
    "n05": ("s1/b2", 3),
    "n06": ("s1/", 2),
    "n07": ("s2/b3", 1),
    "n08": ("s2/b3", 1),
    "n09": ("s2/b4", 1),
    "x": ("/", 9),
}
"""Node -> spine/block, and its slots. One has no block, and one is in no spine, so that it is in no domain."""
LAYERS: Final = (
    {"topologyLayer": "SpineLayer", "parentTopologyLayer": "ClusterTopologyLayer", "labelKey": [SPINE]},
    {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": ["example.com/tor", BLOCK]},
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
)
_NOT_HELPFUL: Final = re.compile(r"\d+ Preemption is not helpful for scheduling, ")
_LONGEST: Final = 45.0
_TREE: Final = 40.0
"""The original looks at nodes every ten seconds."""


@dataclass(frozen=True, slots=True)
class Found:
    """Pod -> its node, and what those are told that have none of what was found out about the network; and which of the
    pods have left that filled the nodes."""

    placed: Mapping[str, str]
    reported: frozenset[str]
    evicted: frozenset[str] = frozenset()


@dataclass(slots=True)
class NetworkStage(Stage):
    """``layers`` and nodes stay from one scenario to the next. No name of a gang is used twice, since the original may
    hear of a PodGroup that is gone after it has heard of the next gang's pods."""

    number: int = 0
    """Of the scenario."""
    others: set[str] = field(default_factory=set)
    """Pods that filled the nodes when the scenario began."""

    async def build(self) -> None:
        """All nodes."""
        for name in PLACES:
            await self.add(name)

    async def add(self, name: str, slots: int | None = None) -> None:
        place, count = PLACES[name]
        amounts = {"cpu": str(count if slots is None else slots), "memory": "64Gi", "pods": "110"}
        await self.client.create(
            NODES,
            {
                "metadata": {"name": name, "labels": labels_of(place)},
                "status": {"capacity": amounts, "allocatable": amounts},
            },
        )

    async def move(self, name: str, place: str) -> None:
        """The node is in another spine/block now."""
        labels = {SPINE: None, BLOCK: None, **labels_of(place)}
        await self.client.patch(NODES, name, {"metadata": {"labels": labels}}, PatchType.MERGE, "")

    async def remove(self, name: str) -> None:
        await self.client.delete(NODES, name, "")

    async def layers(self, *layers: Mapping[str, Any]) -> None:
        """Write the ClusterNetworkTopology."""
        body = {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": list(layers)}}
        if self.watched.list(CLUSTER_NETWORK_TOPOLOGIES):
            await self.client.patch(CLUSTER_NETWORK_TOPOLOGIES, "default", {"spec": body["spec"]}, PatchType.MERGE, "")
        else:
            await self.client.create(CLUSTER_NETWORK_TOPOLOGIES, body)

    async def without_layers(self) -> None:
        await self.client.delete(CLUSTER_NETWORK_TOPOLOGIES, "default", "")
        assert await self.watched.until(lambda: not self.watched.list(CLUSTER_NETWORK_TOPOLOGIES), _LONGEST)

    async def known(self, count: int, *, has: str = "", lacks: str = "") -> list[Any]:
        """Wait until so many nodes are known, and a domain of one name, and none of another; returns the status."""

        def is_known() -> bool:
            found = self.watched.list(CLUSTER_NETWORK_TOPOLOGIES)
            detail = found[0].status.detail_status if found else []
            names = {each.topology_info.topology_name for each in detail}
            is_right = (not has or has in names) and (not lacks or lacks not in names)
            return bool(detail) and detail[0].node_num == count and is_right

        assert await self.watched.until(is_known, _TREE), "the network is not known"
        text = await self.client.raw("GET", CLUSTER_NETWORK_TOPOLOGIES.path("", "default"))
        detail: list[Any] = json.loads(text)["status"]["detailStatus"]
        return detail

    def named(self, gang: str = "g") -> str:
        """The name of a gang of this scenario."""
        return f"{gang}{self.number}"

    async def gang(self, count: int, spec: str, gang: str = "g", **changes: Any) -> None:
        """A gang of so many pods that need each other."""
        await self.group(self.named(gang), count, network_topology_spec=spec)
        await self.pods_of(self.named(gang), count, **changes)

    async def gang_of_kind(self, count: int, spec: str, kind: str) -> None:
        """A gang that looks for pods of a kind, its own."""
        gang = self.named()
        await self.group(gang, count, network_topology_spec=spec)
        for number in range(count):
            name, requests = f"{gang}-{number}", {"cpu": "1", "memory": "64Mi"}
            container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
            metadata = {"name": name, "labels": {POD_GROUP: gang}, "annotations": {SELECTOR: kind}}
            spec_of_pod = {"schedulerName": "koord-scheduler", "containers": [container]}
            await self.client.create(PODS, {"metadata": metadata, "spec": spec_of_pod}, NAMESPACE)
            self.pods[name] = gang

    async def kind_of_pods(self, name: str, kind: str, node: str) -> None:
        """A pod that runs on the node, and is of a kind that others look for."""
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        metadata = {"name": name, "annotations": {SELECTOR: kind}}
        spec = {"schedulerName": "other", "nodeName": node, "containers": [container]}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, NAMESPACE)

    async def fill(self, **priorities: int) -> None:
        """Fill all nodes but that which is in no domain with pods of priority 0, or of that of their block."""
        for name, (place, slots) in PLACES.items():
            priority = priorities.get(place.partition("/")[2], 0)
            for number in range(slots if name != "x" else 0):
                await self._on_node(f"{name}-{number}", name, priority)
        assert await self.watched.until(lambda: len(self.watched.list(PODS)) == len(self.others), _LONGEST)

    async def _on_node(self, name: str, node: str, priority: int) -> None:
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        spec: dict[str, Any] = {"schedulerName": "other", "nodeName": node, "containers": [container]}
        spec |= {"terminationGracePeriodSeconds": 0, "priorityClassName": f"priority-{priority}"}
        await self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)
        self.others.add(name)

    async def priorities(self, *values: int) -> None:
        """Make the classes of these priorities."""
        for value in values:
            body = json.dumps({"metadata": {"name": f"priority-{value}"}, "value": value}).encode()
            await self.client.raw("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)

    async def until_placed(self, count: int) -> None:
        """Wait until so many pods of the scenario have a node. What was found shows whether they got one."""
        await self.watched.until(lambda: len(self._found().placed) >= count, _LONGEST)

    async def until_reported(self, text: str) -> None:
        """Wait until a pod is told something with ``text``. What was found shows whether one was."""
        await self.watched.until(lambda: any(text in each for each in self._found().reported), _LONGEST)

    def _found(self) -> Found:
        pods = [pod for pod in self.watched.list(PODS) if pod.metadata.name in self.pods]
        conditions = [scheduled_condition(pod) for pod in pods if not pod.spec.node_name]
        return Found(
            {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name},
            frozenset(_of_network(found.message) for found in conditions if found is not None) - {""},
            frozenset(self.others - {pod.metadata.name for pod in self.watched.list(PODS)}),
        )

    async def end(self) -> Found:
        """What was found; nothing but the network is left."""
        found = self._found()
        kinds: tuple[Kind[Any], ...] = (PODS, POD_GROUPS)
        for kind in kinds:
            for each in (await self.client.list(kind, NAMESPACE)).items:
                await self._delete(kind, each.metadata.name, NAMESPACE)
        assert await self.watched.until(lambda: not self.watched.list(PODS), _LONGEST)
        self.pods.clear()
        self.others.clear()
        self.number += 1
        return found


def labels_of(place: str) -> dict[str, str]:
    spine, _, block = place.partition("/")
    return {key: value for key, value in ((SPINE, spine), (BLOCK, block)) if value}


def rules(*rules: tuple[str, str] | tuple[str, str, int]) -> str:
    """The annotation: (layer, strategy, multiple) each."""
    found = [
        {"layer": layer, "strategy": strategy, **({"podCountMultiple": multiple[0]} if multiple else {})}
        for layer, strategy, *multiple in rules
    ]
    return json.dumps({"gatherStrategy": found})


def _of_network(message: str) -> str:
    """The part of a message that is about the network; empty where another member's failure is passed on."""
    if message.find("GangGroup") >= 0:
        return ""
    # The original does not count nodes where nobody need leave, see differences.md.
    return _NOT_HELPFUL.sub("", message)


@asynccontextmanager
async def network_stage(client: KubeClient) -> AsyncIterator[NetworkStage]:
    """A stage, with its CRDs in the cluster already."""
    kinds = ((PODS, NAMESPACE), (POD_GROUPS, NAMESPACE), (CLUSTER_NETWORK_TOPOLOGIES, ""))
    async with watching(client, *kinds) as watched:
        yield NetworkStage(watched)

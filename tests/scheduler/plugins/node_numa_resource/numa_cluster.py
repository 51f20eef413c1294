"""Clusters of machines with NUMA nodes, for an engine with NodeNUMAResource."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_resource_topology import NodeResourceTopology, ResourceInfo, Zone
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.model.cpu_allocation.topology import cpus_of
from koordinator.scheduler.configuration.koordinator_arguments import NodeNUMAResourceArgs
from koordinator.scheduler.engine.binding_points import ClusterWriter, CycleState, PodChanges
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_numa_resource.allocation import PodAllocation
from koordinator.scheduler.plugins.node_numa_resource.node_state import NodeState
from koordinator.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster


class NUMA(NodeNUMAResource):
    """With the default arguments, and its books open."""

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args or NodeNUMAResourceArgs(), view)

    def node(self, row: int) -> NodeState:
        """The node as the plugin knows it."""
        return self.known_node(row)


def topology(
    name: str = "a",
    *,
    numa_nodes: int = 2,
    cores: int = 4,
    threads: int = 2,
    memory: str = "4Gi",
    annotations: Mapping[str, Any] | None = None,
    policies: Sequence[str] = (),
    zones: bool = True,
) -> NodeResourceTopology:
    """One socket; the threads of a core are neighbours."""
    per_node = cores * threads
    detail = [
        {"id": cpu, "core": cpu // threads, "node": cpu // per_node, "socket": 0}
        for cpu in range(numa_nodes * per_node)
    ]
    notes = {annotation_keys.CPU_TOPOLOGY: {"detail": detail}, **(annotations or {})}
    amounts = {"cpu": str(per_node), "memory": memory}
    resources = [ResourceInfo(name=key, allocatable=Quantity.parse(text)) for key, text in amounts.items()]
    return NodeResourceTopology(
        metadata=ObjectMeta(name=name, annotations=_texts(notes)),
        topology_policies=list(policies),
        zones=[Zone(name=f"node-{number}", type="Node", resources=resources) for number in range(numa_nodes)]
        if zones
        else [],
    )


def pod(
    name: str,
    cpu: str = "2",
    memory: str = "100Mi",
    *,
    qos: str = "LSR",
    spec: Mapping[str, str] | str | None = None,
    numa: Mapping[str, str] | str | None = None,
    annotations: Mapping[str, Any] | None = None,
    **labels: str,
) -> Pod:
    """``spec`` and ``numa`` are the annotations resource-spec and numa-topology-spec."""
    notes = dict(annotations or {})
    if spec is not None:
        notes[annotation_keys.RESOURCE_SPEC] = spec
    if numa is not None:
        notes[annotation_keys.NUMA_TOPOLOGY_SPEC] = numa
    known = {**labels, **({label_keys.QOS_CLASS: qos} if qos else {})}
    found = make_pod(name, cpu=cpu, memory=memory, labels=known)
    return replace(found, metadata=replace(found.metadata, annotations=_texts(notes)))


def _texts(annotations: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in annotations.items()}


class Machines(Cluster):
    """Nodes of 16 CPUs, each with the topology of the same name, if there is one."""

    def __init__(
        self,
        *topologies: NodeResourceTopology,
        names: str = "a",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, Any] | None = None,
        cpu: str = "16",
        plugins: Sequence[type[Any]] = (NUMA,),
    ) -> None:
        nodes = []
        for name in names:
            node = make_node(name, cpu=cpu, labels=dict(labels or {}))
            nodes.append(replace(node, metadata=replace(node.metadata, annotations=_texts(annotations or {}))))
        super().__init__(nodes, *plugins)
        for each in topologies:
            self.notify(each)

    def notify(self, reported: NodeResourceTopology) -> None:
        """The API has the topology, or has changed it."""
        self.state.set_node_object(NODE_RESOURCE_TOPOLOGIES.name, reported.metadata.name, reported)

    def placed(self, pod: Pod) -> str:
        """Place the pod; the CPUs that it gets."""
        decision = self.engine.decide(describe(pod), NOW)
        assert isinstance(decision, Placement), decision
        refusal = self.engine.assume(decision)
        assert refusal is None, refusal
        held = self.held(pod)
        return format_cpu_list(cpus_of(held.cpus)) if held is not None else ""

    def refused(self, pod: Pod) -> str:
        """Why no node takes the pod."""
        decision = self.engine.decide(describe(pod), NOW)
        assert isinstance(decision, Rejection), decision
        return decision.message

    def held(self, pod: Pod) -> PodAllocation | None:
        """What the pod holds of the plugin."""
        return self.held_by(pod.metadata.uid)

    def held_by(self, uid: str) -> PodAllocation | None:
        """The same by uid."""
        held: PodAllocation | None = self.view.allocations.of(NUMA.name, uid)
        return held

    def noted(self, pod: Pod) -> dict[str, str]:
        """What PreBind writes of a pod that has been placed."""
        info, changes, plugin = describe(pod), PodChanges(), self.profile.plugins[NUMA.name]
        assert isinstance(plugin, NUMA)
        node = self.view.columns.reference(self.row("a"))
        asyncio.run(plugin.pre_bind(CycleState(info), info, node, changes, cast("ClusterWriter", None)))
        return {key: value for key, value in changes.annotations.items() if value is not None}

    def zones_of(self, pod: Pod) -> dict[int, dict[str, str]]:
        """What the pod holds of each NUMA node."""
        held = self.held(pod)
        resources = held.resources if held is not None else ()
        return {number: {name: str(amount) for name, amount in amounts} for number, amounts in resources}

"""Changes the colocation configuration: the batch, mid and free capacity of each node by koord-manager's plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.kinds import (
    CONFIG_MAPS,
    DEVICES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
)
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.api.resource_names import FREE_CPU
from koordinator.base.errors import ConfigurationError
from koordinator.kube.interface import PatchType
from koordinator.model.overcommit.abnormality import remembered
from koordinator.model.overcommit.batch import BATCH_RESOURCES
from koordinator.model.overcommit.device_resources import device_facts
from koordinator.model.overcommit.facts import NodePods, PodFacts, metric_facts, node_facts, pod_facts, topology_facts
from koordinator.model.overcommit.free import FREE_RESOURCES
from koordinator.model.overcommit.mid import MID_RESOURCES
from koordinator.model.overcommit.node_diff import LastWrites, diff_plan
from koordinator.model.overcommit.node_report import NODE_REPORTS
from koordinator.model.overcommit.plan import NodeSnapshot, Plan, decide
from koordinator.model.overcommit.policies import KNOWN_PLUGINS, PLUGINS, Policies, node_policies
from koordinator.model.slo_configuration.admission_check import check_config_map
from koordinator.model.slo_configuration.configuration import SLOConfiguration
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError
from koordinator.scheduler.explain.explainer import amount_text
from koordinator.simulate.change import Change, ChangeError, Remarks
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.snapshot_kinds import CONFIGURATION_NAMESPACE, SLO_CONFIG_MAP

SHOWN: Final = (*BATCH_RESOURCES, *MID_RESOURCES, *FREE_RESOURCES)


@dataclass(frozen=True, slots=True)
class _Planned:
    node: Node
    topology: NodeResourceTopology | None
    plan: Plan
    policies: Policies


class NodePlanner:
    """koord-manager's plan for nodes of a simulated cluster, under one configuration. Created by ``of``."""

    def __init__(self, cluster: SimulatedCluster, configuration: SLOConfiguration) -> None:
        self._cluster = cluster
        self._configuration = configuration
        self._now: datetime = cluster.clock.now()
        self._plugins = frozenset(PLUGINS)
        self._nodes: dict[str, Node] = {}
        self._facts: dict[str, NodeSnapshot] = {}
        self._topologies: dict[str, NodeResourceTopology] = {}

    @classmethod
    async def of(
        cls, cluster: SimulatedCluster, configuration: SLOConfiguration, nodes: Collection[str] | None = None
    ) -> NodePlanner:
        """A planner for all nodes, unless ``nodes`` names some."""
        planner = cls(cluster, configuration)
        await planner._load(nodes)
        return planner

    async def _load(self, nodes: Collection[str] | None) -> None:
        client, api = self._cluster.client, self._cluster.api
        metrics = {each.metadata.name: each for each in (await client.list(NODE_REPORTS)).items}
        devices = {each.metadata.name: each for each in (await client.list(DEVICES)).items}
        topologies = (await client.list(NODE_RESOURCE_TOPOLOGIES)).items
        self._topologies = {each.metadata.name: each for each in topologies}
        pods: dict[str, list[PodFacts]] = {}
        # Decoding all pods of a large cluster takes seconds.
        running = (
            (await client.list(PODS)).items if nodes is None else [convert(pod, Pod) for pod in api.pods_on(nodes)]
        )
        for pod in running:
            if pod.spec.node_name:
                pods.setdefault(pod.spec.node_name, []).append(pod_facts(pod))
        for node in (await client.list(NODES)).items:
            name = node.metadata.name
            if FREE_CPU in node.status.allocatable:
                # A snapshot does not have koord-manager's feature gates, but what they have given nodes.
                self._plugins = frozenset(KNOWN_PLUGINS)
            if nodes is not None and name not in nodes:
                continue
            metric, topology = metrics.get(name), self._topologies.get(name)
            self._nodes[name] = node
            self._facts[name] = NodeSnapshot(
                node_facts(node),
                NodePods(pods.get(name, ())),
                metric_facts(metric) if metric is not None else None,
                topology_facts(topology) if topology is not None else None,
                device_facts(devices.get(name)),
                remembered(node, self._now),
            )

    @property
    def names(self) -> Iterable[str]:
        return sorted(self._nodes)

    def plan(self, name: str) -> _Planned:
        node = self._nodes[name]
        policies = node_policies(self._configuration, node, self._plugins)
        plan = decide(self._facts[name], policies, self._now)
        return _Planned(node, self._topologies.get(name), plan, policies)

    async def write(self, planned: _Planned) -> None:
        """Write the plan as koord-manager does, without delaying small differences."""
        policy = replace(planned.policies.capacity, resource_diff_threshold=0.0)
        diff = diff_plan(planned.node, planned.topology, planned.plan, policy, self._now, LastWrites())
        client, name = self._cluster.client, planned.node.metadata.name
        if diff.zones.operations:
            await client.patch(NODE_RESOURCE_TOPOLOGIES, name, list(diff.zones.operations), PatchType.JSON)
        status = diff.node.status_patch()
        if status is not None:
            await client.patch(NODES, name, status, PatchType.MERGE, subresource="status")
        metadata = diff.node.metadata_patch()
        if metadata is not None:
            await client.patch(NODES, name, metadata, PatchType.MERGE)


@dataclass(frozen=True, slots=True)
class Colocation(Change):
    """The ConfigMap ``slo-controller-config`` becomes ``data``. The load of the nodes is that of the snapshot."""

    data: Mapping[str, str]

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        stored = stored_configuration(cluster)
        try:
            check_config_map(
                self.data,
                stored,
                config_map=f"{CONFIGURATION_NAMESPACE}/{SLO_CONFIG_MAP}",
                names_required=False,
            )
        except RefusedConfigurationError as error:
            raise ChangeError(f"koord-manager would refuse it: {str(error).strip('_')}") from error
        new, problems = SLOConfiguration().updated(self.data)
        if problems:
            raise ChangeError("; ".join(f"data[{each.key}]: {each.message}" for each in problems))
        await self._store(cluster)
        planner = await NodePlanner.of(cluster, new)
        nodes = []
        for name in planner.names:
            planned = planner.plan(name)
            nodes.append(_comparison(planned))
            await planner.write(planned)
        await cluster.settle()
        remarks.facts["colocation"] = {"nodes": nodes, "total": _total(nodes), "overused": _overused(cluster)}
        remarks.done = f"{SLO_CONFIG_MAP} is changed"
        if stored is None:
            remarks.notes.append(f"the snapshot has no ConfigMap {CONFIGURATION_NAMESPACE}/{SLO_CONFIG_MAP}")

    async def _store(self, cluster: SimulatedCluster) -> None:
        metadata = {"name": SLO_CONFIG_MAP, "namespace": CONFIGURATION_NAMESPACE}
        await cluster.api.put(CONFIG_MAPS, {"metadata": metadata, "data": dict(self.data)})


def colocation_of(objects: Sequence[Document], where: str) -> Colocation:
    """The change of a file, which must hold just this ConfigMap. Raises ConfigurationError."""
    data = objects[0].get("data") if len(objects) == 1 and objects[0].get("kind") == "ConfigMap" else None
    if not isinstance(data, dict):
        kinds = ", ".join(str(obj.get("kind")) for obj in objects)
        raise ConfigurationError(where, kinds, f"the one ConfigMap {SLO_CONFIG_MAP}, with data, is needed")
    return Colocation({key: str(text) for key, text in data.items()})


def stored_configuration(cluster: SimulatedCluster) -> Mapping[str, str] | None:
    """The data of the ConfigMap in the snapshot; None where there is none."""
    found = cluster.api.document(CONFIG_MAPS, SLO_CONFIG_MAP, CONFIGURATION_NAMESPACE)
    return None if found is None else {key: str(text) for key, text in (found.get("data") or {}).items()}


async def give_capacity(cluster: SimulatedCluster, nodes: Collection[str]) -> bool:
    """Write the extended resources of new nodes as koord-manager would; False where it runs without colocation."""
    configuration, _ = SLOConfiguration().updated(stored_configuration(cluster))
    if not configuration.colocation.available or not configuration.colocation.strategies.cluster.enable:
        return False
    planner = await NodePlanner.of(cluster, configuration, nodes)
    for name in nodes:
        await planner.write(planner.plan(name))
    return True


def _comparison(planned: _Planned) -> dict[str, Any]:
    """The present and the planned amounts of the node."""
    stored = planned.node.status.allocatable
    amounts: Document = {}
    after = {amount.resource: amount for amount in planned.plan.amounts}
    for name in SHOWN:
        before, new = stored.get(name), after.get(name)
        if before is None and (new is None or new.is_reset):
            continue
        value = 0 if new is None or new.is_reset else (new.value if new.published is None else new.published)
        amounts[name] = {"before": 0 if before is None else before.value, "after": value}
    why = dict.fromkeys(amount.message for amount in planned.plan.amounts if amount.is_reset)
    found: dict[str, Any] = {"node": planned.node.metadata.name, "amounts": amounts}
    if why:
        found["noCapacity"] = "; ".join(why)
    return found


def _total(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for node in nodes:
        for name, amounts in node["amounts"].items():
            sums = total.setdefault(name, {"before": 0, "after": 0})
            for when in sums:
                sums[when] += amounts[when]
    return {
        name: {**sums, "text": {when: amount_text(name, amount) for when, amount in sums.items()}}
        for name, sums in total.items()
    }


def _overused(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    """Nodes on which pods request more of these resources than there is after the change."""
    columns = cluster.scheduler.state.view.columns
    found = []
    for name, row in sorted(columns.row_of.items()):
        for resource in SHOWN:
            allocatable = columns.numbers[row].offered(resource)
            requested = allocatable - columns.numbers[row].free(resource)
            if requested > allocatable:
                amounts = {
                    "requested": amount_text(resource, requested),
                    "allocatable": amount_text(resource, allocatable),
                }
                found.append({"node": name, "resource": resource, **amounts})
    return found

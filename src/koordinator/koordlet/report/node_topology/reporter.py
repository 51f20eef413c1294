"""Keeps what is known of the node's topology current, for the agent itself and in its NodeResourceTopology."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.api.node import Node
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.node_topology.description import NodeTopology, TopologyFacts, describe
from koordinator.koordlet.report.node_topology.kubelet_cpus import (
    STATIC,
    CPUManagerStateError,
    KubeletCPUs,
    kubelet_cpus,
    parse_cpu_manager_state,
)
from koordinator.koordlet.report.node_topology.topology_patch import new_topology, topology_patch
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.node.cpu_topology import CPUBasicInfo, CPUTopology, read_basic_info
from koordinator.node.errors import MissingFileError
from koordinator.node.host import Host, read_file

logger = logging.getLogger(__name__)

"""Seconds. Its configuration changes only when it starts anew."""


@dataclass(frozen=True, slots=True)
class TopologyReporting:
    """Without ``writes``, the topology is kept for the agent only. Without ``asks_kubelet``, what kubelet does with
    CPUs counts for nothing."""

    writes: bool = True
    queries_kubelet: bool = True


class TopologyReporter:
    """Call ``report`` every few seconds. What cannot be determined is left as it was reported before."""

    def __init__(
        self,
        reporting: TopologyReporting,
        client: Client,
        states: StatesInformer,
        info: NodeInfo,
        host: Host,
    ) -> None:
        self._reporting = reporting
        self._client = client
        self._states = states
        self._info = info
        self._host = host
        self._basic: tuple[CPUTopology, CPUBasicInfo] | None = None
        self._written: tuple[str, NodeTopology] | None = None
        """The version of the object that was last written over, and with what."""
        self._said = SaidOnce(logger)

    async def report(self) -> None:
        """One round; an error of the node, of kubelet or of the API server ends it."""
        cpus, memory = self._info.topology, self._info.numa_memory
        node = self._states.node
        if cpus is None or memory is None or node is None or not self._states.has_synced_pods:
            return
        kubelet = self._kubelet_cpus(cpus)
        if kubelet is None:
            return
        facts = TopologyFacts(
            cpus=cpus,
            basic_info=self._basic_info(cpus),
            memory=memory,
            node=node,
            pods=self._states.pods,
            kubelet=kubelet,
            of_kubelet=self._allocated_by_kubelet() if kubelet.policy == STATIC else {},
        )
        topology = describe(facts)
        self._states.set_topology(topology)
        if self._reporting.writes:
            await self._write(node, topology)

    async def _write(self, node: Node, wanted: NodeTopology) -> None:
        present = self._states.node_resource_topology
        if present is None:
            await self._create(node, wanted)
            return
        version = present.metadata.resource_version
        # What was written is seen in the cache a moment later only.
        patch = None if self._written == (version, wanted) else topology_patch(present, wanted)
        if patch is None:
            return
        logger.info("the NodeResourceTopology is brought up to date: %s", ", ".join(_parts(patch)))
        try:
            await self._client.patch(NODE_RESOURCE_TOPOLOGIES, node.metadata.name, patch, PatchType.MERGE)
        except ApiStatusError as error:
            if not (error.is_conflict or error.is_not_found):
                raise
            logger.debug("the NodeResourceTopology has changed meanwhile: %s", error)
        else:
            self._written = version, wanted

    async def _create(self, node: Node, wanted: NodeTopology) -> None:
        try:
            await self._client.create(NODE_RESOURCE_TOPOLOGIES, new_topology(node, wanted))
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
        else:
            logger.info("the NodeResourceTopology is made")

    def _kubelet_cpus(self, topology: CPUTopology) -> KubeletCPUs | None:
        """None before the kubelet has returned its configuration."""
        if not self._reporting.queries_kubelet:
            return KubeletCPUs()
        configuration = self._states.kubelet_configuration
        if configuration is None:
            return None
        known = kubelet_cpus(configuration.document, topology)
        with self._said.round():
            if known.problem:
                self._said.say(known.problem)
        return known

    def _allocated_by_kubelet(self) -> Mapping[str, frozenset[int]]:
        path = f"{self._host.var_lib_kubelet}/cpu_manager_state"
        try:
            return parse_cpu_manager_state(read_file(path))
        except MissingFileError as error:
            # Kubelet makes it before it starts a pod: its folder is another one.
            raise CPUManagerStateError(
                f"kubelet has its static CPU manager, but {path} is not there, so that it is not known which CPUs it "
                "has given to pods: --var-lib-kubelet-dir has to be what kubelet's --root-dir is"
            ) from error

    def _basic_info(self, topology: CPUTopology) -> CPUBasicInfo:
        """Read when the topology was read anew: /proc/cpuinfo of a large machine is long."""
        if self._basic is None or self._basic[0] is not topology:
            self._basic = topology, read_basic_info(self._host, topology)
        return self._basic[1]


def _parts(patch: Mapping[str, Any]) -> list[str]:
    metadata = patch.get("metadata", {})
    named = [name for part in ("annotations", "labels") for name in metadata.get(part, {})]
    return named + [part for part in ("topologyPolicies", "zones") if part in patch]
